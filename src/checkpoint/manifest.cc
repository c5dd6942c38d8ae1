#include "checkpoint/manifest.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checksum.h"
#include "checkpoint/input_file.h"
#include "checkpoint/names.h"
#include "checkpoint/strict_json.h"

namespace co2::checkpoint {
namespace {

using Json = nlohmann::json;

// The end of the text: these two around the checksum. Both have their place in every format, so that a newer one can be
// told from a damaged one.
constexpr std::string_view kBeforeChecksum = ",\n  \"checksum\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr std::size_t kDigits = 32;
constexpr std::uint64_t kLongest = 64 << 20;  // a hundred thousand workers take a quarter of it
constexpr int kDeepest = 8;                   // more than ours, so that a newer format can be told to be one

/// The object without its last field and without the brace that closes it. Throws unless the checksum is right.
std::string_view unsealed(std::string_view text, const Fail& fail) {
  const auto damaged = [&] { fail("its end is missing or damaged"); };
  const auto end = kBeforeChecksum.size() + kDigits + kAfterChecksum.size();
  if (text.size() < end) damaged();
  const auto body = text.substr(0, text.size() - end);
  const auto digits = text.substr(body.size() + kBeforeChecksum.size(), kDigits);
  if (!text.substr(body.size()).starts_with(kBeforeChecksum) || !text.ends_with(kAfterChecksum)) damaged();
  if (const auto checksum = checksum_of(body); checksum != digits) {
    fail(fmt::format("its checksum is {} instead of {}", checksum, digits));
  }
  return body;
}

/// The fields of one JSON object, each of which must be asked for.
class Fields {
 public:
  Fields(const Json& object, std::string where, const Fail& fail)
      : object_(object), where_(std::move(where)), fail_(fail) {
    if (!object.is_object()) fail_(fmt::format("{}is not an object", where_));
  }

  const Json& field(const char* key) {
    asked_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) fail_(fmt::format("{}{} is missing", where_, key));
    return *found;
  }
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) {
    const auto& value = field(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || std::in_range<std::int64_t>(value.get<std::uint64_t>()));
    const auto number = fits ? value.get<std::int64_t>() : least;
    if (!fits || number < least || number > most) {
      fail_(fmt::format("{}{} is {}, and must be {} to {}", where_, key, value.dump(), least, most));
    }
    return number;
  }
  std::string text(const char* key) {
    const auto& value = field(key);
    if (!value.is_string()) fail_(fmt::format("{}{} is {}, which is no text", where_, key, value.dump()));
    return value.get<std::string>();
  }
  void no_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (!asked_.contains(key)) fail_(fmt::format("{}{} is not a field of format {}", where_, key, kFormat));
    }
  }

 private:
  const Json& object_;
  std::string where_;
  const Fail& fail_;
  std::set<std::string> asked_;
};

Json json_of(const Manifest::Fact& fact) {
  return std::visit([](const auto& value) { return Json(value); }, fact);  // nlohmann writes null for NaN and infinity
}

Manifest::Fact fact_of(const std::string& key, const Json& value, const Fail& fail) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value.is_number_float()) return value.get<double>();
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>()))) {
    fail(fmt::format("about: {} is {}, and must be a text or a number", key, value.dump()));
  }
  return value.get<std::int64_t>();
}

FileEntry entry_of(const Json& value, const std::string& where, const Fail& fail) {
  Fields fields(value, where, fail);
  FileEntry entry{.name = fields.text("name"),
                  .bytes = fields.integer("bytes", 0, std::numeric_limits<std::int64_t>::max()),
                  .checksum = fields.text("checksum")};
  fields.no_others();
  if (!is_plain_name(entry.name) || entry.name == kManifestFile) {
    fail(fmt::format("{}name is {:?}, which can't be a file of a checkpoint", where, entry.name));
  }
  if (!is_checksum(entry.checksum)) fail(fmt::format("{}checksum is {:?}, which is none", where, entry.checksum));
  return entry;
}

std::vector<FileEntry> files_of(const Json& value, int workers, const Fail& fail) {
  if (!value.is_array()) fail("files is not an array");
  std::vector<FileEntry> files;
  std::set<std::string> names;
  for (const auto& item : value) {
    files.push_back(entry_of(item, fmt::format("files[{}]: ", files.size()), fail));
    if (!names.insert(files.back().name).second) fail(fmt::format("files: {} occurs twice", files.back().name));
  }
  for (int worker = 0; worker < workers; ++worker) {
    if (!names.contains(worker_file(worker))) fail(fmt::format("files: {} is missing", worker_file(worker)));
  }
  return files;
}

}  // namespace

std::string sealed(std::string_view object) {
  object = object.substr(0, object.rfind('}'));
  object = object.substr(0, object.find_last_not_of(" \n") + 1);
  return fmt::format("{}{}{}{}", object, kBeforeChecksum, checksum_of(object), kAfterChecksum);
}

std::string manifest_text(const Manifest& manifest) {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"co2", manifest.co2},
                                 {"step", manifest.step},
                                 {"workers", manifest.workers},
                                 {"island_size", manifest.island_size},
                                 {"zero", manifest.zero},
                                 {"about", Json::object()},
                                 {"files", Json::array()}};
  for (const auto& [key, fact] : manifest.about) json["about"][key] = json_of(fact);
  for (const auto& file : manifest.files) {
    json["files"].push_back(
        nlohmann::ordered_json{{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  std::string text;
  try {
    text = sealed(json.dump(2));
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("can't write the manifest of step {}: {}", manifest.step, error.what()));
  }
  parse_manifest(text, fmt::format("the manifest of step {}", manifest.step));
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  const Fail fail = [&](const std::string& what) {
    throw DataError(fmt::format("{} is not a sound manifest: {}", file, what));
  };
  const Json json = parse_strictly(fmt::format("{}\n}}", unsealed(text, fail)), kDeepest, fail);
  Fields fields(json, "", fail);
  if (const auto format = fields.integer("format", 1, std::numeric_limits<std::int64_t>::max()); format > kFormat) {
    const auto version = json.value("co2", Json());
    throw DataError(fmt::format("{} was written by a newer co2{}, format {}; this one reads {}: update co2", file,
                                version.is_string() ? " (" + version.get<std::string>() + ")" : "", format, kFormat));
  }
  Manifest manifest;
  manifest.co2 = fields.text("co2");
  manifest.step = fields.integer("step", 0, kLastStep);
  manifest.workers = static_cast<int>(fields.integer("workers", 1, kMostWorkers));
  manifest.island_size = static_cast<int>(fields.integer("island_size", 1, manifest.workers));
  manifest.zero = static_cast<int>(fields.integer("zero", 0, 3));
  const auto& about = fields.field("about");
  if (!about.is_object()) fail("about is not an object");
  for (const auto& [key, value] : about.items()) manifest.about[key] = fact_of(key, value, fail);
  manifest.files = files_of(fields.field("files"), manifest.workers, fail);
  fields.no_others();
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const InputFile file(folder / kManifestFile);
  if (file.size() > kLongest) {
    throw DataError(fmt::format("{} is not a sound manifest: it has {} bytes", file.path().string(), file.size()));
  }
  return parse_manifest(file.read(0, file.size()), file.path().string());
}

const FileEntry& file_of(const Manifest& manifest, int worker, const std::filesystem::path& folder) {
  const auto found = std::ranges::find(manifest.files, worker_file(worker), &FileEntry::name);
  if (worker < 0 || worker >= manifest.workers || found == manifest.files.end()) {
    throw DataError(
        fmt::format("{} has no part of worker {}: it is of {} workers", folder.string(), worker, manifest.workers));
  }
  return *found;
}

}  // namespace co2::checkpoint
