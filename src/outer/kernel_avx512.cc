// Compiled with -mavx512f on x86-64 (kernels.cmake); empty elsewhere.
#if defined(__x86_64__)
#define CO2_KERNEL avx512
#define CO2_KERNEL_WIDTH 16
#include "outer/kernel.inc"
#endif
