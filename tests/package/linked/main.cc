// Exits with 0 if the library of this torch's devices, libtorch_cuda.so, was loaded with the program: only then could
// it use a GPU.
#include <dlfcn.h>

#include <cstdio>

int main() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD) != nullptr) return 0;
  std::puts("libtorch_cuda.so was not loaded");
  return 1;
}
