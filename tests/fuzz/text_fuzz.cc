// Numbers of a part, and names of folders and files.

#include "checkpoint/exact_number.h"
#include "checkpoint/names.h"
#include "fuzz.h"

using namespace co2::checkpoint;

std::vector<std::string> seeds() {
  return {"0",
          "-12",
          "9223372036854775807",
          "0.1",
          "-2.5e-300",
          "inf",
          "nan:7ff8000000000000",
          "step-000000000120",
          "step-000000000120.old",
          ".step-000000000120.partial-removed-1",
          "worker-00000.safetensors"};
}

void run(std::string_view input) {
  if (const auto value = exact_int64(input)) CO2_HOLDS(exact_text(*value) == input);
  if (const auto value = exact_double(input)) CO2_HOLDS(exact_text(*value) == input);
  if (const auto name = parse_step_name(input)) CO2_HOLDS(text_of(*name) == input);
  if (is_plain_name(input)) CO2_HOLDS(input.find('/') == input.npos && input != "." && input != "..");
}
