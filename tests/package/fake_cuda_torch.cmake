# make_cuda_torch(SITE VERSION): SITE/torch looks like the Python package of a CUDA build, but for what CUDA itself would
# do: headers and CPU libraries are those of the real torch (TORCH_HOME), libtorch.so leads to libtorch_cuda.so, which finds
# CUDA's runtime by a path of its own, in SITE/nvidia. TorchConfig.cmake insists on a toolkit, as the real one does.
function(make_cuda_torch site version)
  set(lib ${site}/torch/lib)
  set(cuda ${site}/nvidia/lib)
  set(package ${site}/torch/share/cmake/Torch)
  file(MAKE_DIRECTORY ${lib} ${cuda} ${package})
  file(TOUCH ${site}/torch/__init__.py)
  file(CREATE_LINK ${TORCH_HOME}/include ${site}/torch/include SYMBOLIC)
  file(GLOB libraries ${TORCH_HOME}/lib/libtorch_cpu.so ${TORCH_HOME}/lib/libc10.so ${TORCH_HOME}/lib/libgomp*)
  foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(CREATE_LINK ${library} ${lib}/${name} SYMBOLIC)
  endforeach()
  file(WRITE ${package}/TorchConfigVersion.cmake "set(PACKAGE_VERSION ${version})\n")
  file(WRITE ${package}/TorchConfig.cmake "message(FATAL_ERROR \"PyTorch was built with CUDA, but there is no toolkit\")\n")

  file(WRITE ${site}/cudart.cc "extern \"C\" int fake_cuda_runtime() { return 1; }\n")
  file(WRITE ${site}/device.cc "extern \"C\" int fake_cuda_runtime();\nextern const int devices = fake_cuda_runtime();\n")
  file(WRITE ${site}/nothing.cc "")
  set(shared ${COMPILER} -shared -fPIC -Wl,--no-as-needed)
  set(cuda_path -Wl,-rpath,$ORIGIN/../../nvidia/lib:$ORIGIN)
  run(${shared} ${site}/cudart.cc -o ${cuda}/libcudart.so.13 -Wl,-soname,libcudart.so.13)
  run(${shared} ${site}/device.cc -o ${lib}/libtorch_cuda.so -Wl,-soname,libtorch_cuda.so ${cuda}/libcudart.so.13 ${cuda_path})
  run(${shared} ${site}/nothing.cc -o ${lib}/libtorch.so -Wl,-soname,libtorch.so ${lib}/libtorch_cpu.so
    ${lib}/libtorch_cuda.so ${cuda_path})
endfunction()
