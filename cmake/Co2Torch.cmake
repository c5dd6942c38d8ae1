# Finds LibTorch and refuses one that can't serve. It comes with the Python package `torch`, so the question is which
# Python: CO2_PYTHON if set, otherwise the project's own (.venv, made by scripts/setup), otherwise the python3 on PATH.
# A Torch that CMAKE_PREFIX_PATH or Torch_DIR names comes before all of these.
#
# Gives everyone:
#   CO2_PYTHON            the interpreter for tests written in Python; empty if there is none
#   CO2_GLOO_INCLUDE_DIR  where gloo/context.h is: torch's own headers if they have it, otherwise our declarations
set(CO2_TORCH_OLDEST 2.13.0)
set(CO2_PYTHON "" CACHE FILEPATH "Python whose package torch is used; empty: .venv/bin/python, otherwise python3")

if(CO2_PYTHON)
  if(NOT EXISTS "${CO2_PYTHON}")
    message(FATAL_ERROR "CO2_PYTHON names ${CO2_PYTHON}, which does not exist. Give the path of a Python with "
      "torch ${CO2_TORCH_OLDEST} or newer, or leave it out and run scripts/setup.")
  endif()
elseif(EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(CO2_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python")
else()
  find_program(CO2_SYSTEM_PYTHON python3)
  mark_as_advanced(CO2_SYSTEM_PYTHON)
  if(CO2_SYSTEM_PYTHON)
    set(CO2_PYTHON "${CO2_SYSTEM_PYTHON}")
  endif()
endif()

# find_spec locates the package without importing it, which would take seconds.
set(_co2_torch_prefix "")
if(CO2_PYTHON AND NOT Torch_DIR)
  execute_process(
    COMMAND "${CO2_PYTHON}" -c
      "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '')"
    OUTPUT_VARIABLE _co2_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(_co2_torch_prefix)
  list(APPEND CMAKE_PREFIX_PATH "${_co2_torch_prefix}/share/cmake")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/Co2LibTorch.cmake)
co2_find_libtorch()
if(NOT Torch_FOUND)
  message(FATAL_ERROR "co2 found no LibTorch: neither in CMAKE_PREFIX_PATH nor in the Python '${CO2_PYTHON}'. "
    "Run scripts/setup, which installs torch==${CO2_TORCH_OLDEST} into .venv, or name a Python that has it: "
    "cmake -DCO2_PYTHON=/path/to/python")
endif()
if(Torch_VERSION VERSION_LESS CO2_TORCH_OLDEST)
  message(FATAL_ERROR "co2 needs LibTorch ${CO2_TORCH_OLDEST} or newer, found ${Torch_VERSION} in ${Torch_DIR}. "
    "Run scripts/setup, which installs torch==${CO2_TORCH_OLDEST} into .venv, or name another one: "
    "cmake -DCO2_PYTHON=/path/to/python")
endif()

# A build of torch without distributed support lacks the class or its header. Only the class's type information is
# linked, so that the check needs no header and stays quick.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES co2::torch)
set(CMAKE_REQUIRED_QUIET ON)
check_cxx_source_compiles("
  extern \"C\" const char _ZTIN4c10d16ProcessGroupGlooE[];
  int main(int argc, char**) { return _ZTIN4c10d16ProcessGroupGlooE[argc] == 0; }" CO2_TORCH_HAS_GLOO)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_QUIET)
find_path(CO2_C10D_INCLUDE_DIR torch/csrc/distributed/c10d/ProcessGroupGloo.hpp
  PATHS ${CO2_TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH)
mark_as_advanced(CO2_C10D_INCLUDE_DIR)
if(NOT CO2_TORCH_HAS_GLOO OR NOT CO2_C10D_INCLUDE_DIR)
  unset(CO2_TORCH_HAS_GLOO CACHE)  # so that the next attempt looks again
  message(FATAL_ERROR "co2 needs a LibTorch with c10d's Gloo backend; ${Torch_VERSION} in ${Torch_DIR} was built "
    "without it. Run scripts/setup, which installs torch==${CO2_TORCH_OLDEST} into .venv, or name another one: "
    "cmake -DCO2_PYTHON=/path/to/python")
endif()

# Only torch's own copy of Gloo's headers will do: Debian's libgloo-dev is of another year, and its virtual functions
# need not be those that torch was compiled with.
find_path(CO2_GLOO_INCLUDE_DIR gloo/context.h PATHS ${CO2_TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH)
mark_as_advanced(CO2_GLOO_INCLUDE_DIR)
if(NOT CO2_GLOO_INCLUDE_DIR)
  set(CO2_GLOO_INCLUDE_DIR "${PROJECT_SOURCE_DIR}/src/comm/gloo_headers")
endif()
message(STATUS "LibTorch ${Torch_VERSION}: ${Torch_DIR}")
