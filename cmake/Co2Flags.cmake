# How our own code is compiled. Every target takes it with co2_precompiled(target).
#
# Objects share precompiled headers, and g++ only accepts one with the very flags that it was made with. So flags are set
# here, once, and targets add none of their own (a single source file may, with SKIP_PRECOMPILE_HEADERS).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Time is spent in LibTorch and in the outer pass's kernels, which ask for -O3 themselves; the rest compiles a fifth faster.
string(REPLACE -O3 -O2 CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# ccache and a precompiled header only work together when ccache may overlook macros that were defined before it
# (pch_defines, time_macros) and g++ leaves a mark where the header was used (-fpch-preprocess, below). Clones of the
# project share what ccache knows: paths inside it are made relative (BASEDIR, NOHASHDIR).
find_program(CO2_CCACHE ccache)
mark_as_advanced(CO2_CCACHE)
if(CO2_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CO2_CCACHE})
endif()

add_library(co2_flags INTERFACE)
# -fPIC for programs too: the same flags everywhere.
target_compile_options(co2_flags INTERFACE -fPIC -fpch-preprocess
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Wvla -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlaps and overflows in inlined std::string operations that aren't there (its bug 105651).
  target_compile_options(co2_flags INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()
find_program(CO2_MOLD mold)
mark_as_advanced(CO2_MOLD)
if(CO2_MOLD)
  # Debian 12's mold counts thread-local variables to what becomes read-only after loading. If they happen to end a page,
  # that page is not there, and the program does not load ("cannot apply additional memory protection"). And if sizes happen
  # to be such that the number of segments depends on where the first one ends, it never stops: segments get pages of
  # their own.
  target_link_options(co2_flags INTERFACE -fuse-ld=mold -Wl,-z,norelro -Wl,-z,separate-loadable-segments)
endif()

# Sanitizers watch our own code; LibTorch itself is not instrumented (tests/sanitizers says what follows from that).
foreach(sanitizer IN LISTS CO2_SANITIZE)
  target_compile_options(co2_flags INTERFACE -fsanitize=${sanitizer})
  target_link_options(co2_flags INTERFACE -fsanitize=${sanitizer})
endforeach()
if(CO2_SANITIZE)
  # Their instrumentation makes g++ doubt the initialisation of variables that are fine.
  target_compile_options(co2_flags INTERFACE -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-maybe-uninitialized)
endif()

# Three precompiled headers, because a file pays for all of the one it uses: 2 s for ATen's and 7 s for all of torch's on
# a slow core. So only targets that are full of torch::nn and torch::optim take the large one, and those that never touch
# a tensor the small one.
function(co2_make_precompiled name)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cc CONTENT "\n")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PUBLIC co2_flags co2::torch)
  target_precompile_headers(${name} PRIVATE ${ARGN} <fmt/format.h>)
endfunction()
co2_make_precompiled(co2_pch_aten <ATen/ATen.h>)
co2_make_precompiled(co2_pch_torch <torch/torch.h>)
if(CO2_BUILD_PROGRAM)
  co2_make_precompiled(co2_pch_plain <filesystem> <functional> <map> <optional> <string> <vector> <nlohmann/json.hpp>)
endif()

# co2_precompiled(target [TORCH | PLAIN])
function(co2_precompiled target)
  cmake_parse_arguments(ARG "TORCH;PLAIN" "" "" ${ARGN})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:co2_flags>)
  if(ARG_TORCH)
    target_precompile_headers(${target} REUSE_FROM co2_pch_torch)
  elseif(ARG_PLAIN)
    target_precompile_headers(${target} REUSE_FROM co2_pch_plain)
  else()
    target_precompile_headers(${target} REUSE_FROM co2_pch_aten)
  endif()
endfunction()
