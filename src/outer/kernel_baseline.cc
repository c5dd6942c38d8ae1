// Four floats per vector: what every x86-64 and every 64-bit ARM has.
#define CO2_KERNEL baseline
#define CO2_KERNEL_WIDTH 4
#include "outer/kernel.inc"
