# Finds LibTorch inside the Python package `torch` (scripts/setup puts one into .venv) or wherever CMAKE_PREFIX_PATH
# says, and refuses one that can't serve.
set(CO2_TORCH_OLDEST 2.13.0)
if(NOT DEFINED Torch_DIR AND NOT CMAKE_PREFIX_PATH AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  execute_process(
    COMMAND ${CMAKE_SOURCE_DIR}/.venv/bin/python -c "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE _prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND CMAKE_PREFIX_PATH "${_prefix}")
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "co2 found no LibTorch. Run scripts/setup, which installs torch==${CO2_TORCH_OLDEST} into .venv, "
    "or name yours: cmake -DCMAKE_PREFIX_PATH=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')")
endif()
if(Torch_VERSION VERSION_LESS CO2_TORCH_OLDEST)
  message(FATAL_ERROR "co2 needs LibTorch ${CO2_TORCH_OLDEST} or newer, found ${Torch_VERSION} in ${Torch_DIR}. "
    "Run scripts/setup, or name another one with CMAKE_PREFIX_PATH.")
endif()
