#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/file_entry.h"

namespace co2::checkpoint {

constexpr int kFormat = 1;  ///< what we write, and the newest that we read
constexpr auto kManifestFile = "manifest.json";

/// What a checkpoint consists of.
struct Manifest {
  /// Told by those who save, for those who look. A number that is not finite comes back as NaN.
  using Fact = std::variant<std::string, std::int64_t, double>;

  std::string co2{};  ///< the version that wrote it
  std::int64_t step = 0;
  int workers = 1;
  int island_size = 1;
  int zero = 0;                         ///< stage, 0 to 3
  std::map<std::string, Fact> about{};  ///< task, model, …
  std::vector<FileEntry> files{};       ///< each worker's, and whatever else there is

  bool operator==(const Manifest&) const = default;
};

/// As JSON. The last field is a checksum of all text before it. Throws DataError for what parse_manifest() would
/// refuse.
std::string manifest_text(const Manifest& manifest);

/// Reads it. Throws DataError that names `file` if a single bit of it has changed, if a newer co2 wrote it, or a field
/// is missing, unknown, or out of its range.
Manifest parse_manifest(std::string_view text, const std::string& file);

/// Of a checkpoint's folder.
Manifest read_manifest(const std::filesystem::path& folder);

/// A worker's file. Throws DataError that names `folder` if there is no such worker.
const FileEntry& file_of(const Manifest& manifest, int worker, const std::filesystem::path& folder);

/// The text of a JSON object with the checksum put in as its last field: for tests, which make manifests of their own.
std::string sealed(std::string_view object);

}  // namespace co2::checkpoint
