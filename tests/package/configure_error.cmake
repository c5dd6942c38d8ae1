# Configures co2 as CMakeLists.txt beside this file says, and checks that it fails with the right message.
file(REMOVE_RECURSE ${WORK})
# A real Python without torch, so that only the fake can be found; nor may the system's own LibTorch, if it has one.
execute_process(COMMAND ${PYTHON} -m venv --without-pip ${WORK}/python COMMAND_ERROR_IS_FATAL ANY)
set(arguments -DCO2_PYTHON=${WORK}/python/bin/python -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF
  -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF -DCMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=OFF)
if(FAKE)
  list(APPEND arguments -DTorch_DIR=${FAKE})
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE}
    -DCMAKE_CXX_COMPILER=${COMPILER} ${arguments}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " flat "${output}")  # CMake wraps messages
string(FIND "${flat}" "${MESSAGE}" found)
if(result EQUAL 0)
  message(FATAL_ERROR "configuring succeeded, but should have failed with '${MESSAGE}':\n${output}")
endif()
if(found EQUAL -1)
  message(FATAL_ERROR "expected the message '${MESSAGE}', got:\n${output}")
endif()
string(FIND "${flat}" "scripts/setup" advice)
if(advice EQUAL -1)
  message(FATAL_ERROR "the message does not say what to do:\n${output}")
endif()
file(REMOVE_RECURSE ${WORK})
