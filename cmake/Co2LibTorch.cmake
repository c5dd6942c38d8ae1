# co2_find_libtorch([NOT_BEFORE version] [LAST_RESORT folder]): finds LibTorch, in our build and for users of the installed
# package alike, and makes the target co2::torch of its headers and libraries.
#
# It looks for the package Torch wherever find_package looks (Torch_DIR, Torch_ROOT, CMAKE_PREFIX_PATH, the system, at last
# LAST_RESORT), but never runs TorchConfig.cmake: that one insists on a CUDA toolkit when torch was built with CUDA, as
# `pip install torch` on Linux is, although no program needs a toolkit to use torch. Only TorchConfigVersion.cmake beside
# it is read. One that is older than NOT_BEFORE is passed over.
#
# Sets Torch_FOUND, Torch_VERSION, CO2_TORCH_HOME (the folder with include and lib) and CO2_TORCH_INCLUDE_DIRS.
function(co2_find_libtorch)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NOT_BEFORE;LAST_RESORT" "")
  set(last_resort "")
  if(ARG_LAST_RESORT)
    set(last_resort PATHS "${ARG_LAST_RESORT}")
  endif()
  while(TRUE)
    find_package(Torch QUIET CONFIG CONFIGS TorchConfigVersion.cmake ${last_resort})
    if(NOT Torch_FOUND OR NOT PACKAGE_VERSION VERSION_LESS "${ARG_NOT_BEFORE}" OR Torch_DIR IN_LIST CMAKE_IGNORE_PATH)
      break()
    endif()
    list(APPEND CMAKE_IGNORE_PATH "${Torch_DIR}")
    unset(Torch_DIR CACHE)
  endwhile()
  set(Torch_FOUND "${Torch_FOUND}" PARENT_SCOPE)
  if(NOT Torch_FOUND)
    return()
  endif()

  get_filename_component(home "${Torch_DIR}/../../.." ABSOLUTE)  # of home/share/cmake/Torch
  set(include_dirs "${home}/include" "${home}/include/torch/csrc/api/include")
  set(Torch_VERSION "${PACKAGE_VERSION}" PARENT_SCOPE)
  set(CO2_TORCH_HOME "${home}" PARENT_SCOPE)
  set(CO2_TORCH_INCLUDE_DIRS "${include_dirs}" PARENT_SCOPE)
  if(TARGET co2::torch)
    return()
  endif()
  add_library(co2::torch INTERFACE IMPORTED)
  # What torch's own package defines. Some of its classes have other members without USE_DISTRIBUTED.
  target_compile_definitions(co2::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
  target_compile_features(co2::torch INTERFACE cxx_std_20)
  foreach(folder IN LISTS include_dirs)  # CMake refuses a folder that isn't there with a message that helps nobody
    if(IS_DIRECTORY "${folder}")
      target_include_directories(co2::torch SYSTEM INTERFACE "${folder}")
    endif()
  endforeach()
  # libtorch.so holds nothing, but leads to the libraries of the devices that this torch was built for (libtorch_cuda.so).
  # They announce themselves when they are loaded: a program must not drop it for want of a symbol, as --as-needed does,
  # the default of some systems. Where CUDA's libraries are, those libraries know themselves.
  target_link_libraries(co2::torch INTERFACE "${home}/lib/libtorch_cpu.so" "${home}/lib/libc10.so"
    "-Wl,--push-state,--no-as-needed,\"${home}/lib/libtorch.so\",--pop-state")
endfunction()
