#include "saving/folder_claim.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <mutex>
#include <set>

namespace co2 {

namespace {

std::mutex mutex;

std::set<std::pair<std::string, int>>& claims() {
  static std::set<std::pair<std::string, int>> all;
  return all;
}

}  // namespace

FolderClaim::FolderClaim(const std::filesystem::path& folder, int rank)
    : key_(std::filesystem::weakly_canonical(folder).string(), rank) {
  const std::lock_guard lock(mutex);
  if (claims().insert(key_).second) return;
  throw OptionError(fmt::format(
      "there is another Saver for {}: give each a folder of its own, or save a second model with the first, "
      "as something of yours: saver.save(one, [&](co2::StateVisitor& visitor) {{ two.visit(visitor); }})",
      folder.string()));
}

FolderClaim::~FolderClaim() {
  const std::lock_guard lock(mutex);
  claims().erase(key_);
}

}  // namespace co2
