#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

/// What each target has: inputs to begin with, and what to do with one. Whatever it is given, it may only return;
/// libFuzzer tries everything else.
std::vector<std::string> seeds();
void run(std::string_view input);

/// A property that holds for every input.
#define CO2_HOLDS(condition)                                                            \
  if (!(condition)) {                                                                   \
    std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
    std::abort();                                                                       \
  }

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* folder = std::getenv("CO2_FUZZ_SEEDS")) {
    int number = 0;
    for (const auto& seed : seeds()) {
      std::ofstream(std::string(folder) + "/seed-" + std::to_string(number++), std::ios::binary) << seed;
    }
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
