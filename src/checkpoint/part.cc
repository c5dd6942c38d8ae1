#include "checkpoint/part.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "checkpoint/exact_number.h"
#include "checkpoint/names.h"
#include "checkpoint/safetensors.h"

namespace co2::checkpoint {
namespace {

// Keys of the file's __metadata__, in front of a name.
constexpr std::string_view kInteger = "int64:";
constexpr std::string_view kNumber = "float64:";
constexpr std::string_view kText = "text:";

std::string key(std::string_view kind, const std::string& name) { return fmt::format("{}{}", kind, name); }

template <typename T>
T valid(const std::optional<T>& value, const std::string& name, const std::string& text,
        const std::filesystem::path& file) {
  if (value) return *value;
  throw DataError(fmt::format("{} is no part of a checkpoint: {} is {:?}", file.string(), name, text));
}

}  // namespace

FileEntry write_part(const std::filesystem::path& folder, int worker, const Part& part) {
  if (worker < 0 || worker >= kMostWorkers) {
    throw DataError(fmt::format("there can be no part of worker {}: 0 to {} are possible", worker, kMostWorkers - 1));
  }
  Safetensors file{.tensors = part.tensors, .metadata = {}};
  for (const auto& [name, value] : part.integers) file.metadata[key(kInteger, name)] = exact_text(value);
  for (const auto& [name, value] : part.numbers) file.metadata[key(kNumber, name)] = exact_text(value);
  for (const auto& [name, value] : part.texts) file.metadata[key(kText, name)] = value;
  return write_safetensors(folder / worker_file(worker), file);
}

Part read_part(const std::filesystem::path& file, const FileEntry& entry) {
  auto contents = read_safetensors(file, entry);
  Part part{.tensors = std::move(contents.tensors), .integers = {}, .numbers = {}, .texts = {}};
  for (auto& [name, text] : contents.metadata) {
    if (name.starts_with(kInteger)) {
      part.integers[name.substr(kInteger.size())] = valid(exact_int64(text), name, text, file);
    } else if (name.starts_with(kNumber)) {
      part.numbers[name.substr(kNumber.size())] = valid(exact_double(text), name, text, file);
    } else if (name.starts_with(kText)) {
      part.texts[name.substr(kText.size())] = std::move(text);
    } else {
      throw DataError(
          fmt::format("{} is no part of a checkpoint: {} is not of a kind that we know", file.string(), name));
    }
  }
  return part;
}

}  // namespace co2::checkpoint
