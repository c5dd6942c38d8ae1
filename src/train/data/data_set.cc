#include "train/data/data_set.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/files.h"
#include "train/data/lock_file.h"
#include "train/sha256.h"

namespace co2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds kBesidesFetching{600};  // longer than all else that a lock's holder may do
constexpr std::size_t kDigitsInName = 16;

std::optional<fs::path> kept_in(const fs::path& cache, const DataSet& data) {
  const std::string prefix = data.name + "-";
  std::error_code error;
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    const bool fits = name.size() == prefix.size() + kDigitsInName + data.suffix.size();
    if (fits && name.starts_with(prefix) && name.ends_with(data.suffix)) return entry->path();
  }
  return std::nullopt;
}

/// What is kept, if it is there and whole. A damaged file is removed by whoever holds the lock.
std::optional<KeptFile> cached(const DataSet& data, const fs::path& cache, bool locked, const DataContext& context) {
  const auto path = kept_in(cache, data);
  if (!path) return std::nullopt;
  auto contents = read_file(*path);
  auto digest = sha256(contents);
  if (path->filename().string().substr(data.name.size() + 1, kDigitsInName) == digest.substr(0, kDigitsInName)) {
    return KeptFile{*path, std::move(digest), std::move(contents)};
  }
  if (locked) {
    context.say(fmt::format("{} is damaged; making it anew", path->string()));
    fs::remove(*path);
  }
  return std::nullopt;
}

KeptFile make(const DataSet& data, const fs::path& cache, const DataContext& context) {
  const TemporaryFolder work(fs::absolute(cache));
  const auto contents_folder = unpack(data.package, data.text(), cache, work.path(), context);
  auto contents = data.make(contents_folder, work.path());
  auto digest = sha256(contents);
  const auto path = cache / fmt::format("{}-{}{}", data.name, digest.substr(0, kDigitsInName), data.suffix);
  write_atomically(path, contents);
  context.say(
      fmt::format("{}: {:.1f} MB, kept as {}", data.text(), static_cast<double>(contents.size()) / 1e6, path.string()));
  return {path, std::move(digest), std::move(contents)};
}

}  // namespace

std::string DataSet::text() const { return fmt::format("the {} {}", kind, name); }

KeptFile load(const DataSet& data, const DataContext& context) {
  const auto cache = cache_folder();
  std::error_code error;
  fs::create_directories(cache, error);
  if (error) {
    throw DataError(fmt::format("can't create the folder {} for the data: {}; set CO2_DATA to another one",
                                cache.string(), error.message()));
  }
  const auto with_advice = [&](const std::string& what) {
    return DataError(fmt::format("can't load {}: {}; {}", data.text(), what, data.package.how_to_place(cache)));
  };
  try {
    if (auto kept = cached(data, cache, /*locked=*/false, context)) return std::move(*kept);
    LockFile lock(cache / fmt::format("{}.lock", data.name), data.package.longest_fetch() + kBesidesFetching,
                  context.cancelled);
    if (auto kept = cached(data, cache, /*locked=*/true, context)) return std::move(*kept);
    if (!lock.word().empty()) throw DataError(lock.word());
    try {
      auto kept = make(data, cache, context);
      lock.leave("");
      return kept;
    } catch (const DataError& failure) {
      lock.leave(failure.what());
      throw;
    }
  } catch (const DataError& failure) {
    throw with_advice(failure.what());
  } catch (const fs::filesystem_error& failure) {
    throw with_advice(failure.what());
  }
}

std::optional<fs::path> kept_path(const DataSet& data) { return kept_in(cache_folder(), data); }

fs::path cache_folder() {
  if (const char* chosen = std::getenv("CO2_DATA"); chosen && *chosen) return chosen;
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "co2";
  throw DataError("there is no folder for the data: set CO2_DATA (or HOME)");
}

}  // namespace co2::train
