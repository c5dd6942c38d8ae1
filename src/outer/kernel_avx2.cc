// Compiled with -mavx2 on x86-64 (kernels.cmake); empty elsewhere.
#if defined(__x86_64__)
#define CO2_KERNEL avx2
#define CO2_KERNEL_WIDTH 8
#include "outer/kernel.inc"
#endif
