#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "base/descriptor.h"

namespace co2 {

/// A folder that belongs to one program at a time. The lock is a file in it, which says who holds it; it ends with this
/// object, or with the last process that has its descriptor, however that ends.
class FolderLock {
 public:
  static constexpr auto kFile = ".co2-lock";

  /// In a folder that exists and can be written. Waits for up to `patience`: whoever holds it may be about to end.
  /// Throws DataError: "{busy}, process 17 on host a: {advice}".
  FolderLock(const std::filesystem::path& folder, const std::string& busy, const std::string& advice,
             std::chrono::milliseconds patience = {});
  ~FolderLock();
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = delete;

  /// For child processes: the folder is taken until they have ended, too.
  int descriptor() const { return file_.get(); }

 private:
  /// False: somebody else has it.
  bool try_to_take();

  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace co2
