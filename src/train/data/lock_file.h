#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace co2::train {

/// An exclusive lock between processes (and between threads that each make one), held until the end of the scope or of
/// the process. It carries a word from one holder to the next: why it failed.
class LockFile {
 public:
  /// Waits for the lock. Throws DataError after `timeout`, or when `cancelled`.
  LockFile(const std::filesystem::path& path, std::chrono::seconds timeout, const std::function<bool()>& cancelled);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// What a holder said that had the lock while we were waiting for it; empty if none did.
  const std::string& word() const { return word_; }
  /// Leaves a word for those who are waiting now.
  void leave(const std::string& word);

 private:
  int descriptor_ = -1;
  std::string word_;
};

}  // namespace co2::train
