#include <co2/error.h>

#include "checkpoint/safetensors_header.h"
#include "fuzz.h"

using namespace co2::checkpoint;

namespace {

/// Two bytes that say how many bytes of data follow, and the header's text: the length of the text need not be right
/// for the parser to be reached.
constexpr std::size_t kPrefix = 2;

std::string seed(SafetensorsHeader header) {
  place(header, "x");
  const auto& tensors = header.tensors;
  const std::uint64_t bytes = tensors.empty() ? 0 : tensors[in_data_order(header).back()].end;
  const std::string prefix = {static_cast<char>(bytes & 0xff), static_cast<char>(bytes >> 8)};
  return prefix + header_bytes(header, "x").substr(kLengthBytes);
}

void parse(std::string_view text, std::uint64_t data_bytes) {
  const auto header = parse_header(text, data_bytes, "x");
  std::uint64_t covered = 0;
  for (const auto& tensor : header.tensors) covered += tensor.end - tensor.begin;
  CO2_HOLDS(covered == data_bytes);
  // Written again it says the same; with places of our own it is as good.
  CO2_HOLDS(parse_header(header_bytes(header, "x").substr(kLengthBytes), data_bytes, "x") == header);
  auto placed = header;
  place(placed, "x");
  CO2_HOLDS(parse_header(header_bytes(placed, "x").substr(kLengthBytes), data_bytes, "x") == placed);
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<TensorInfo> every;
  for (const auto& dtype : dtypes()) every.push_back({std::string(dtype.name), std::string(dtype.name), {2, 3}});
  return {seed({}), seed({{{"a", "F32", {2, 3}}}, {{"format", "pt"}}}),
          seed({{{"a", "U8", {3}}, {"b", "F64", {}}, {"c", "I64", {0, 7}}, {"\"\n\u00fc", "BOOL", {1}}}, {}}),
          seed({every, {{"int64:step", "1"}, {"", ""}}})};
}

void run(std::string_view input) {
  try {
    const auto length = header_length(input.substr(0, kLengthBytes), input.size(), "x");
    parse(input.substr(kLengthBytes, length), input.size() - kLengthBytes - length);
  } catch (const co2::DataError&) {
  }
  if (input.size() < kPrefix) return;
  try {
    const auto bytes = static_cast<unsigned char>(input[0]) + 256U * static_cast<unsigned char>(input[1]);
    parse(input.substr(kPrefix), bytes);
  } catch (const co2::DataError&) {
  }
}
