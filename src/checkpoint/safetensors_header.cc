#include "checkpoint/safetensors_header.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "checkpoint/strict_json.h"

namespace co2::checkpoint {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMostDimensions = 64;
constexpr int kDeepest = 3;  // header, tensor, shape
constexpr auto kMetadata = "__metadata__";
constexpr Dtype kDtypes[] = {{"F64", 8},     {"I64", 8},     {"U64", 8},  {"F32", 4}, {"I32", 4},
                             {"U32", 4},     {"F16", 2},     {"BF16", 2}, {"I16", 2}, {"U16", 2},
                             {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},   {"U8", 1},  {"BOOL", 1}};

Fail failing(const std::string& file) {
  return [file](const std::string& what) {
    throw DataError(fmt::format("{} is not a sound safetensors file: {}", file, what));
  };
}

Fail failing_to_write(const std::string& file) {
  return [file](const std::string& what) { throw DataError(fmt::format("can't write {}: {}", file, what)); };
}

std::uint64_t element_bytes(const std::string& dtype, const std::string& tensor, const Fail& fail) {
  const auto* known = std::ranges::find(kDtypes, dtype, &Dtype::name);
  if (known == std::end(kDtypes)) fail(fmt::format("tensor {} has the unknown dtype {}", tensor, dtype));
  return known->bytes;
}

/// Of the data. Even of an empty tensor the other dimensions must be possible, as strides are computed from them.
std::uint64_t bytes_of(const TensorInfo& tensor, const Fail& fail) {
  if (tensor.shape.size() > kMostDimensions) {
    fail(fmt::format("tensor {} has {} dimensions", tensor.name, tensor.shape.size()));
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bytes = element_bytes(tensor.dtype, tensor.name, fail);
  for (const auto size : tensor.shape) {
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
    if (bytes > kMost / factor) {
      fail(fmt::format("tensor {} has the impossible shape [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
    }
    bytes *= factor;
  }
  return std::ranges::find(tensor.shape, 0) == tensor.shape.end() ? bytes : 0;
}

std::map<std::string, std::string> parse_metadata(const Json& value, const Fail& fail) {
  if (!value.is_object()) fail("__metadata__ is not an object");
  std::map<std::string, std::string> result;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail(fmt::format("__metadata__ {} is not text", key));
    result[key] = text.get<std::string>();
  }
  return result;
}

class TensorParser {
 public:
  TensorParser(std::uint64_t data_bytes, const Fail& fail) : data_bytes_(data_bytes), fail_(fail) {}

  TensorInfo parse(const std::string& name, const Json& value) const {
    TensorInfo result{.name = name, .dtype = {}, .shape = {}};
    if (!value.is_object()) fail_(fmt::format("tensor {} is not an object", name));
    const auto& dtype = field(name, value, "dtype");
    if (!dtype.is_string()) fail_(fmt::format("tensor {} has the unknown dtype {}", name, dtype.dump()));
    result.dtype = dtype.get<std::string>();
    result.shape = numbers(name, "shape", field(name, value, "shape"));
    const auto offsets = numbers(name, "data_offsets", field(name, value, "data_offsets"));
    if (offsets.size() != 2) fail_(fmt::format("tensor {} has {} data_offsets, not 2", name, offsets.size()));
    result.begin = static_cast<std::uint64_t>(offsets[0]);
    result.end = static_cast<std::uint64_t>(offsets[1]);
    const auto bytes = bytes_of(result, fail_);
    if (result.begin > result.end || result.end > data_bytes_) {
      fail_(fmt::format("tensor {} lies at bytes {} to {} of {}", name, result.begin, result.end, data_bytes_));
    }
    if (result.end - result.begin != bytes) {
      fail_(fmt::format("tensor {} has {} bytes of data, its shape needs {}", name, result.end - result.begin, bytes));
    }
    return result;
  }

 private:
  const Json& field(const std::string& name, const Json& value, const char* key) const {
    const auto found = value.find(key);
    if (found == value.end()) fail_(fmt::format("tensor {} has no {}", name, key));
    return *found;
  }

  std::vector<std::int64_t> numbers(const std::string& name, const char* key, const Json& value) const {
    if (!value.is_array()) fail_(fmt::format("tensor {}: {} is not an array", name, key));
    std::vector<std::int64_t> result;
    for (const auto& item : value) {
      if (!item.is_number_unsigned() || !std::in_range<std::int64_t>(item.get<std::uint64_t>())) {
        fail_(fmt::format("tensor {}: {} holds {}", name, key, item.dump()));
      }
      result.push_back(item.get<std::int64_t>());
    }
    return result;
  }

  std::uint64_t data_bytes_;
  const Fail& fail_;
};

}  // namespace

std::span<const Dtype> dtypes() { return kDtypes; }

std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes, const std::string& file) {
  const auto fail = failing(file);
  if (first_bytes.size() < kLengthBytes || file_bytes < kLengthBytes) {
    fail(fmt::format("it has only {} bytes", file_bytes));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > kLongestHeader || length > file_bytes - kLengthBytes) {
    fail(fmt::format("its header is said to have {} bytes, the file has {}", length, file_bytes));
  }
  return length;
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file) {
  const auto fail = failing(file);
  const auto fail_header = [&](const std::string& what) { fail("of its header, " + what); };
  std::vector<std::string> names;
  const Json json = parse_strictly(text, kDeepest, fail_header, &names);

  SafetensorsHeader header;
  const TensorParser parser(data_bytes, fail);
  for (const auto& name : names) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(json.at(name), fail);
    } else {
      header.tensors.push_back(parser.parse(name, json.at(name)));
    }
  }
  std::uint64_t covered = 0;
  for (const auto index : in_data_order(header)) {
    const auto& tensor = header.tensors[index];
    if (tensor.begin != covered) {
      fail(fmt::format("tensor {} begins at byte {} of the data, where {} was due: tensors overlap or leave a gap",
                       tensor.name, tensor.begin, covered));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) fail(fmt::format("the tensors cover {} of {} bytes of data", covered, data_bytes));
  return header;
}

void place(SafetensorsHeader& header, const std::string& file) {
  const auto fail = failing_to_write(file);
  std::vector<std::uint64_t> sizes;
  for (const auto& tensor : header.tensors) sizes.push_back(element_bytes(tensor.dtype, tensor.name, fail));
  std::vector<std::size_t> order(header.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t index) { return sizes[index]; });
  std::uint64_t covered = 0;
  for (const auto index : order) {
    auto& tensor = header.tensors[index];
    tensor.begin = covered;
    covered += bytes_of(tensor, fail);
    tensor.end = covered;
  }
}

std::vector<std::size_t> in_data_order(const SafetensorsHeader& header) {
  std::vector<std::size_t> order(header.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By both ends: what is empty comes before what begins at the same place.
  std::ranges::stable_sort(
      order, {}, [&](std::size_t index) { return std::pair(header.tensors[index].begin, header.tensors[index].end); });
  return order;
}

std::string header_bytes(const SafetensorsHeader& header, const std::string& file) {
  const auto fail = failing_to_write(file);
  std::set<std::string_view> names = {kMetadata};
  std::string text(kLengthBytes, '\0');
  text += '{';
  if (!header.metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadata);
    for (const auto& [key, value] : header.metadata) {
      text += fmt::format("{}:{},", quoted(key, fail), quoted(value, fail));
    }
    text.back() = '}';
    text += ',';
  }
  for (const auto& tensor : header.tensors) {
    if (!names.insert(tensor.name).second) fail(fmt::format("the tensor name {} is taken", tensor.name));
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", quoted(tensor.name, fail),
                        tensor.dtype, fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const std::uint64_t length = text.size() - kLengthBytes;
  if (length > kLongestHeader) fail(fmt::format("its header would have {} bytes, more than readers take", length));
  std::memcpy(text.data(), &length, kLengthBytes);
  return text;
}

}  // namespace co2::checkpoint
