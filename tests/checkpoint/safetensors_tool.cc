// safetensors_tool IN OUT: reads a file and writes what it held, the tensors in reverse order. test_python.py compares.

#include <co2/error.h>

#include <algorithm>
#include <cstdio>

#include "checkpoint/safetensors.h"

int main(int argc, char** argv) {
  using namespace co2::checkpoint;
  if (argc != 3) {
    std::fputs("usage: safetensors_tool IN OUT\n", stderr);
    return 2;
  }
  try {
    auto contents = read_safetensors(argv[1]);
    std::ranges::reverse(contents.tensors);
    write_safetensors(argv[2], contents);
  } catch (const co2::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
  return 0;
}
