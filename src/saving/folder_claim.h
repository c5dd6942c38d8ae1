#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace co2 {

/// That a worker of this process saves into a folder, which belongs to one Saver as long as that lives: two would take
/// each other's files away.
class FolderClaim {
 public:
  /// Throws OptionError if it has one already.
  FolderClaim(const std::filesystem::path& folder, int rank);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  std::pair<std::string, int> key_;
};

}  // namespace co2
