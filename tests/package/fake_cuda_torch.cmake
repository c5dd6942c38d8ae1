# make_cuda_torch(SITE VERSION): SITE/torch looks like the Python package of a CUDA build, but for what CUDA itself would
# do: headers and CPU libraries are those of the real torch (TORCH_HOME), libtorch.so leads to libtorch_cuda.so, which finds
# CUDA's runtime by a path of its own, in SITE/runtime. TorchConfig.cmake insists on a toolkit, as the real one does.
function(make_cuda_torch site version)
  set(lib ${site}/torch/lib)
  set(cuda ${site}/runtime)
  set(package ${site}/torch/share/cmake/Torch)
  file(MAKE_DIRECTORY ${lib} ${cuda} ${package})
  file(TOUCH ${site}/torch/__init__.py)
  file(CREATE_LINK ${TORCH_HOME}/include ${site}/torch/include SYMBOLIC)
  file(GLOB libraries ${TORCH_HOME}/lib/*.so*)
  list(REMOVE_ITEM libraries ${TORCH_HOME}/lib/libtorch.so ${TORCH_HOME}/lib/libtorch_cuda.so)
  foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(CREATE_LINK ${library} ${lib}/${name} SYMBOLIC)
  endforeach()
  if(EXISTS ${TORCH_HOME}/../nvidia)  # what the libraries of a real CUDA build need
    file(CREATE_LINK ${TORCH_HOME}/../nvidia ${site}/nvidia SYMBOLIC)
  endif()
  file(WRITE ${package}/TorchConfigVersion.cmake "set(PACKAGE_VERSION ${version})\n")
  file(WRITE ${package}/TorchConfig.cmake "message(FATAL_ERROR \"PyTorch was built with CUDA, but there is no toolkit\")\n")

  file(WRITE ${site}/cudart.cc "extern \"C\" int fake_cuda_runtime() { return 1; }\n")
  file(WRITE ${site}/device.cc "extern \"C\" int fake_cuda_runtime();\nextern const int devices = fake_cuda_runtime();\n")
  file(WRITE ${site}/nothing.cc "")
  set(shared ${COMPILER} -shared -fPIC -Wl,--no-as-needed)
  set(cuda_path -Wl,-rpath,$ORIGIN/../../runtime:$ORIGIN)
  run(${shared} ${site}/cudart.cc -o ${cuda}/libfake_cudart.so -Wl,-soname,libfake_cudart.so)
  run(${shared} ${site}/device.cc -o ${lib}/libtorch_cuda.so -Wl,-soname,libtorch_cuda.so ${cuda}/libfake_cudart.so ${cuda_path})
  run(${shared} ${site}/nothing.cc -o ${lib}/libtorch.so -Wl,-soname,libtorch.so ${lib}/libtorch_cpu.so
    ${lib}/libtorch_cuda.so ${cuda_path})
endfunction()
