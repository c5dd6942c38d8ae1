# A CUDA build of torch, on a machine without a CUDA toolkit or with one: co2 can be configured with it, also by way of
# Python, and who uses the installed package links with all of it. A package insists on its own version of torch.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/fake_cuda_torch.cmake)
file(REMOVE_RECURSE ${WORK})
set(generator -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE} -DCMAKE_CXX_COMPILER=${COMPILER})
make_cuda_torch(${WORK}/newest 99.0.0)
make_cuda_torch(${WORK}/same ${TORCH_VERSION})

# The toolkit: whoever asked for it would get nowhere.
file(WRITE ${WORK}/toolkit/bin/nvcc "#!/bin/sh\necho asked >>${WORK}/asked\nexit 1\n")
file(CHMOD ${WORK}/toolkit/bin/nvcc PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(with_toolkit ${CMAKE_COMMAND} -E env PATH=${WORK}/toolkit/bin:$ENV{PATH} CUDA_HOME=${WORK}/toolkit)
execute_process(COMMAND ${PYTHON} -m venv --without-pip ${WORK}/python COMMAND_ERROR_IS_FATAL ANY)
set(configure ${CMAKE_COMMAND} -E env PYTHONPATH=${WORK}/newest ${CMAKE_COMMAND} --fresh -S ${SOURCE} -B ${WORK}/build
  ${generator} -DCO2_PYTHON=${WORK}/python/bin/python)
run(${configure})
run(${with_toolkit} ${configure})
file(STRINGS ${WORK}/build/CMakeCache.txt found REGEX "^Torch_DIR.*=${WORK}/newest/torch/share/cmake/Torch$")
if(NOT found)
  message(FATAL_ERROR "configured with another torch than Python's")
endif()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
set(use ${with_toolkit} ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/linked ${generator}
  -Dco2_DIR=${WORK}/prefix/lib/cmake/co2 "-DCMAKE_EXE_LINKER_FLAGS=${FLAGS} -Wl,--as-needed")
# A folder with share/cmake/Torch in it, and that folder's share/cmake, which is what Python calls torch's prefix.
foreach(prefix ${WORK}/same/torch ${WORK}/same/torch/share/cmake)
  run(${use} --fresh -B ${WORK}/linked -DCMAKE_PREFIX_PATH=${prefix})
endforeach()
run(${CMAKE_COMMAND} --build ${WORK}/linked)
run(${WORK}/linked/linked)
if(EXISTS ${WORK}/asked)
  message(FATAL_ERROR "the CUDA toolkit was asked")
endif()

fails_with("co2 was built with LibTorch ${TORCH_VERSION} and can't be used with 99.0.0" ${use} -B ${WORK}/other
  -DTorch_DIR=${WORK}/newest/torch/share/cmake/Torch)
# An older one, such as the system's, is passed over.
run(${use} --fresh -B ${WORK}/other -DCMAKE_PREFIX_PATH=${CMAKE_CURRENT_LIST_DIR}/fakes/old)
file(REMOVE_RECURSE ${WORK})
