#include "saving/file_systems.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/files.h"

namespace co2 {

std::vector<int> workers_that_share(const std::filesystem::path& folder, const std::string& token, int rank,
                                    Group& group) {
  // Everybody leaves a mark, and looks whose marks are there.
  const std::string prefix = fmt::format(".seen-by-{}-", token);
  const std::filesystem::path mark = folder / fmt::format("{}{}", prefix, rank);
  std::vector<int> workers;
  group.all_or_none("write to the folder for checkpoints", [&] {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw DataError(fmt::format("can't make the folder {}: {}", folder.string(), error.message()));
    write_atomically(mark, "");
  });
  group.all_or_none("read the folder for checkpoints", [&] {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix)) continue;
      int worker = -1;
      const auto [end, problem] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), worker);
      if (problem == std::errc() && end == name.data() + name.size()) workers.push_back(worker);
    }
    if (error) throw DataError(fmt::format("can't read the folder {}: {}", folder.string(), error.message()));
  });
  std::error_code ignored;
  std::filesystem::remove(mark, ignored);
  std::sort(workers.begin(), workers.end());
  return workers;
}

}  // namespace co2
