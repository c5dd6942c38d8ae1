# Installs the build into a prefix of its own, builds consumer/ and the examples against it as a user would, and runs
# the result.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${WORK})
set(flags "")
foreach(sanitizer IN LISTS SANITIZE)
  string(APPEND flags " -fsanitize=${sanitizer}")
endforeach()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
if(EXISTS ${WORK}/prefix/bin/co2)
  run(${WORK}/prefix/bin/co2 --version)  # finds LibTorch from where it was installed
  run(${WORK}/prefix/bin/co2 study report ${WORK}/prefix/share/co2/studies/quick.toml --out ${WORK}/no-results)
endif()
file(STRINGS ${WORK}/prefix/lib/cmake/co2/co2Targets.cmake leaked REGEX "${BUILD}")
if(leaked)
  message(FATAL_ERROR "the installed package points into the build folder: ${leaked}")
endif()
function(build source folder)
  run(${CMAKE_COMMAND} -S ${source} -B ${folder} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_EXE_LINKER_FLAGS=${LINKER_FLAGS} -DCMAKE_CXX_FLAGS=${flags})
  run(${CMAKE_COMMAND} --build ${folder})
endfunction()
build(${CONSUMER} ${WORK}/build)
run(${CMAKE_COMMAND} -E chdir ${WORK}/build ${WORK}/build/consumer)
# Those that were installed, which know nothing of our source tree.
build(${WORK}/prefix/share/doc/co2/examples ${WORK}/examples)
fails_with("is not set: see the first lines" ${CMAKE_COMMAND} -E env --unset=RANK --unset=WORLD_SIZE
  ${WORK}/examples/own_optimizer)
file(REMOVE_RECURSE ${WORK})
