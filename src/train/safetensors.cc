#include "train/safetensors.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/unique_keys.h"

namespace co2::train {
namespace {

using Json = nlohmann::ordered_json;
static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMostDimensions = 64;

struct Dtype {
  const char* name;
  at::ScalarType type;
};
constexpr Dtype kDtypes[] = {{"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16},
                             {"I64", at::kLong},   {"I32", at::kInt},   {"U8", at::kByte}};

struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Reading: says what is wrong with which file.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), file_(read_file(path)) {}

  Safetensors read() {
    const Json header = parse_header();
    Safetensors result;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        result.metadata = metadata(value);
      } else {
        entries.push_back(entry(name, value));
      }
    }
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
    std::uint64_t covered = 0;
    for (const auto& e : entries) {
      if (e.begin != covered) {
        fail(fmt::format("tensor {} begins at byte {} of the data, where {} was due: tensors overlap or leave a gap",
                         e.name, e.begin, covered));
      }
      covered = e.end;
      auto tensor = at::empty(e.shape, e.type);
      if (e.end > e.begin) std::memcpy(tensor.data_ptr(), file_.data() + data_ + e.begin, e.end - e.begin);
      result.tensors.emplace_back(e.name, std::move(tensor));
    }
    if (covered != data_bytes()) {
      fail(fmt::format("the tensors cover {} of {} bytes of data", covered, data_bytes()));
    }
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{} is not a sound safetensors file: {}", path_.string(), what));
  }
  std::uint64_t data_bytes() const { return file_.size() - data_; }

  Json parse_header() {
    if (file_.size() < kLengthBytes) fail(fmt::format("it has only {} bytes", file_.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), kLengthBytes);
    if (length > kLongestHeader || length > file_.size() - kLengthBytes) {
      fail(fmt::format("its header is said to have {} bytes, the file has {}", length, file_.size()));
    }
    data_ = kLengthBytes + length;
    const char* begin = file_.data() + kLengthBytes;
    const auto unique =
        unique_keys<Json>([this](const std::string& name) { fail(fmt::format("tensor {} occurs twice", name)); });
    Json header;
    try {
      header = Json::parse(begin, begin + length, unique);
    } catch (const Json::exception& error) {
      fail(fmt::format("its header is not JSON ({})", error.what()));
    }
    if (!header.is_object()) fail("its header is not a JSON object");
    return header;
  }

  std::map<std::string, std::string> metadata(const Json& value) const {
    if (!value.is_object()) fail("__metadata__ is not an object");
    std::map<std::string, std::string> result;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("__metadata__ {} is not text", key));
      result[key] = text.get<std::string>();
    }
    return result;
  }

  Entry entry(const std::string& name, const Json& value) const {
    const auto field = [&](const char* key) -> const Json& {
      if (!value.is_object() || !value.contains(key)) fail(fmt::format("tensor {} has no {}", name, key));
      return value.at(key);
    };
    Entry result{name, dtype(name, field("dtype")), {}};
    const auto shape = numbers(name, "shape", field("shape"));
    const auto offsets = numbers(name, "data_offsets", field("data_offsets"));
    if (shape.size() > kMostDimensions) fail(fmt::format("tensor {} has {} dimensions", name, shape.size()));
    if (offsets.size() != 2) fail(fmt::format("tensor {} has {} data_offsets, not 2", name, offsets.size()));

    const bool empty = std::ranges::find(shape, 0u) != shape.end();
    std::uint64_t bytes = empty ? 0 : c10::elementSize(result.type);
    for (const auto size : shape) {
      if (!empty && bytes > std::numeric_limits<std::int64_t>::max() / size) {
        fail(fmt::format("tensor {} has an impossible shape", name));
      }
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(fmt::format("tensor {} has an impossible shape", name));
      }
      bytes *= size;
      result.shape.push_back(static_cast<std::int64_t>(size));
    }
    result.begin = offsets[0];
    result.end = offsets[1];
    if (result.begin > result.end || result.end > data_bytes()) {
      fail(fmt::format("tensor {} lies at bytes {} to {} of {}", name, result.begin, result.end, data_bytes()));
    }
    if (result.end - result.begin != bytes) {
      fail(fmt::format("tensor {} has {} bytes of data, its shape needs {}", name, result.end - result.begin, bytes));
    }
    return result;
  }

  at::ScalarType dtype(const std::string& name, const Json& value) const {
    if (value.is_string()) {
      for (const auto& known : kDtypes) {
        if (value == known.name) return known.type;
      }
    }
    fail(fmt::format("tensor {} has the unknown dtype {}", name, value.dump()));
  }

  std::vector<std::uint64_t> numbers(const std::string& name, const char* key, const Json& value) const {
    if (!value.is_array()) fail(fmt::format("tensor {}: {} is not an array", name, key));
    std::vector<std::uint64_t> result;
    for (const auto& item : value) {
      if (!item.is_number_unsigned()) fail(fmt::format("tensor {}: {} holds {}", name, key, item.dump()));
      result.push_back(item.get<std::uint64_t>());
    }
    return result;
  }

  std::filesystem::path path_;
  std::string file_;
  std::size_t data_ = 0;
};

const char* dtype_name(const std::string& tensor, at::ScalarType type) {
  for (const auto& known : kDtypes) {
    if (known.type == type) return known.name;
  }
  throw DataError(
      fmt::format("can't write tensor {} as safetensors: its dtype {} is not supported", tensor, c10::toString(type)));
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const Safetensors& contents) {
  Json header = Json::object();
  if (!contents.metadata.empty()) header["__metadata__"] = contents.metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (name == "__metadata__" || header.contains(name)) {
      throw DataError(fmt::format("can't write {}: the tensor name {} is taken", path.string(), name));
    }
    const auto bytes = static_cast<std::uint64_t>(tensor.nbytes());
    header[name] = {{"dtype", dtype_name(name, tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const std::uint64_t length = text.size();

  write_atomically(path, [&](const auto& append) {
    append(std::string_view(reinterpret_cast<const char*>(&length), kLengthBytes));
    append(text);
    for (const auto& [name, tensor] : contents.tensors) {
      const auto data = tensor.detach().cpu().contiguous();
      append(std::string_view(static_cast<const char*>(data.const_data_ptr()), data.nbytes()));
    }
  });
}

Safetensors read_safetensors(const std::filesystem::path& path) { return Reader(path).read(); }

}  // namespace co2::train
