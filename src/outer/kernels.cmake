# Flags of single files of the outer pass. They are not those of the shared precompiled header, so these files go
# without it.

# No contraction to fused multiply-adds: all vector widths must give the same bits.
set(_kernels outer/kernel_avx2.cc outer/kernel_avx512.cc outer/kernel_baseline.cc)
set_source_files_properties(${_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
  COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>;-ffp-contract=off")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_property(SOURCE outer/kernel_avx2.cc APPEND PROPERTY COMPILE_OPTIONS -mavx2)
  # GCC 12 warns about its own AVX-512 intrinsics.
  set_property(SOURCE outer/kernel_avx512.cc APPEND PROPERTY COMPILE_OPTIONS -mavx512f -Wno-maybe-uninitialized -Wno-uninitialized)
endif()

# at::parallel_for is a template that runs serially unless its user is compiled with OpenMP. The runtime is the one that
# LibTorch has loaded (same soname). Thread sanitizer can't see into it and would report every hand-over: serial there.
set_source_files_properties(outer/fused.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
if(NOT "thread" IN_LIST CO2_SANITIZE)
  set_property(SOURCE outer/fused.cc APPEND PROPERTY COMPILE_OPTIONS -fopenmp)
  target_link_options(co2 INTERFACE -fopenmp)
endif()
