#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/folder_lock.h"
#include "study/result.h"

namespace co2::study {

/// results.jsonl of a study's folder: a line per run that has ended, the newest of a key counts. A line is there as a
/// whole or, if the machine went down while it was written, cut off at the end of the file, where it is dropped.
class Results {
 public:
  static constexpr const char* kFile = "results.jsonl";

  /// To look at; a file that is not there has nothing in it. Throws DataError with the line of one that can't be read.
  static Results read(const std::filesystem::path& folder, const Complete& complete);
  /// To add to: nobody else may do so meanwhile. Makes the folder. Throws DataError, also if somebody does.
  static Results open(const std::filesystem::path& folder, const Complete& complete);

  /// It is on disk when it returns. Throws DataError.
  void append(const Result& result);

  /// What a run has led to; null: nothing yet.
  const Result* find(const std::string& key) const;
  /// The same, if it has succeeded.
  const Result* done(const std::string& key) const;

  /// About lines that do not count, for people.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  explicit Results(std::filesystem::path path) : path_(std::move(path)) {}
  /// Returns the size of what is whole.
  std::size_t load(const Complete& complete);
  void add_line(const std::string& line, std::size_t number, const Complete& complete);

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;  // only if it was opened to add to
  Descriptor file_;                 // the same
  std::map<std::string, Result> by_key_;
  std::vector<std::string> warnings_;
};

}  // namespace co2::study
