#include "checkpoint/folder.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>
#include <tuple>

#include "base/files.h"
#include "base/human.h"
#include "base/version.h"
#include "checkpoint/input_file.h"
#include "checkpoint/names.h"

namespace co2::checkpoint {
namespace fs = std::filesystem;
namespace {

using Kind = StepName::Kind;

/// The folder's names that are ours. None if there is no folder yet.
std::vector<StepName> names_in(const fs::path& folder) {
  std::vector<StepName> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (auto name = parse_step_name(entry->path().filename().string())) names.push_back(std::move(*name));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw DataError(fmt::format("can't read {}: {}", folder.string(), error.message()));
  }
  return names;
}

/// A folder under a hidden name, which others may be removing as well.
void remove_hidden(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (is_there(path)) {
    throw DataError(fmt::format("can't remove {}: {}", path.string(), error.message()));
  }
}

std::vector<FileEntry> files_here(const Manifest& manifest, const Workers& here, const fs::path& folder) {
  if (!here) return manifest.files;
  std::vector<FileEntry> files;
  for (const int worker : *here) files.push_back(file_of(manifest, worker, folder));
  return files;
}

void check_files(const Manifest& manifest, const Workers& here, const fs::path& folder) {
  for (const auto& entry : files_here(manifest, here, folder)) check_file(folder, entry);
}

}  // namespace

Checkpoints::Checkpoints(const fs::path& run, Replace replace) : folder_(run / "checkpoints"), replace_(replace) {}

fs::path Checkpoints::path_of(std::int64_t step) const { return folder_ / text_of({Kind::kWhole, step}); }

fs::path Checkpoints::begin(std::int64_t step, const std::string& token) const {
  auto partial = folder_ / text_of({Kind::kPartial, step, token});
  std::error_code error;
  if (fs::create_directories(folder_, error)) sync_folder(folder_.parent_path());
  if (!error) {
    remove_partials_if([&](const StepName& name) { return name.step == step && name.token != token; });
    fs::create_directory(partial, error);
  }
  if (error) throw DataError(fmt::format("can't make the folder {}: {}", partial.string(), error.message()));
  return partial;
}

void Checkpoints::discard(std::int64_t step, const std::string& token) const {
  remove_hidden(folder_ / text_of({Kind::kPartial, step, token}));
}

fs::path Checkpoints::publish(const std::string& token, Manifest manifest, const Workers& here) {
  const auto partial = folder_ / text_of({Kind::kPartial, manifest.step, token});
  auto place = path_of(manifest.step);
  const auto old = folder_ / text_of({Kind::kOld, manifest.step});
  manifest.co2 = kVersion;
  const auto text = manifest_text(manifest);
  for (const auto& entry : files_here(manifest, here, partial)) check_size(InputFile(partial / entry.name), entry);
  write_atomically(partial / kManifestFile, text);
  sync_folder(partial);

  // Left when somebody was killed while it was replaced. It has a successor already, or is about to get one.
  if (is_there(place) && is_there(old)) remove(old);
  put_in_place(partial, place, old, replace_);
  published_ = manifest.step;
  try {
    if (is_there(old)) remove(old);
    remove_hidden(partial);
  } catch (const DataError&) {
    // It is published all the same. What it replaced is prune()'s to remove, who says so if that can't be.
  }
  return place;
}

std::vector<Listed> Checkpoints::list() const {
  auto names = names_in(folder_);
  std::erase_if(names, [](const StepName& name) { return name.kind == Kind::kPartial; });
  std::ranges::sort(names, [](const StepName& a, const StepName& b) {
    return std::tuple(b.step, a.kind) < std::tuple(a.step, b.kind);  // the old one of a step after the other
  });
  std::vector<Listed> result;
  for (const auto& name : names) {
    Listed checkpoint{.path = folder_ / text_of(name), .step = name.step, .manifest = std::nullopt};
    try {
      checkpoint.manifest = read_manifest(checkpoint.path);
      if (checkpoint.manifest->step != name.step) {
        throw DataError(fmt::format("{} is of step {}: the folder was renamed",
                                    (checkpoint.path / kManifestFile).string(), checkpoint.manifest->step));
      }
    } catch (const DataError& error) {
      if (!is_there(checkpoint.path)) continue;  // it was removed while we looked
      checkpoint.manifest.reset();
      checkpoint.problem = error.what();
    }
    result.push_back(std::move(checkpoint));
  }
  return result;
}

Listed Checkpoints::of_step(std::int64_t step) const {
  std::vector<std::int64_t> steps;
  for (Listed& each : list()) {
    if (each.step == step) return std::move(each);
    steps.push_back(each.step);
  }
  throw DataError(fmt::format("there is no checkpoint of step {} in {}, {}{}", step, folder_.parent_path().string(),
                              steps.empty() ? "nor of any other" : "but of ", fmt::join(steps, ", ")));
}

std::string Checkpoints::problem_of(const Listed& checkpoint, const Workers& here) const {
  if (!checkpoint.manifest) return checkpoint.problem;
  try {
    check_files(*checkpoint.manifest, here, checkpoint.path);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

NewestGood Checkpoints::newest_good(const Workers& here) const {
  NewestGood result;
  for (auto& checkpoint : list()) {
    auto problem = problem_of(checkpoint, here);
    if (problem.empty()) {
      result.path = checkpoint.path;
      result.manifest = std::move(*checkpoint.manifest);
      break;
    }
    result.passed_over.emplace_back(checkpoint.path, std::move(problem));
  }
  return result;
}

bool Checkpoints::is_good(const Listed& checkpoint, const Workers& here) {
  const auto known = verified_.find(checkpoint.path);
  if (known != verified_.end() && known->second == checkpoint.manifest) return true;
  if (!problem_of(checkpoint, here).empty()) return false;
  verified_[checkpoint.path] = *checkpoint.manifest;
  return true;
}

void Checkpoints::prune(int keep, const Workers& here) {
  if (keep < 1) throw OptionError(fmt::format("{} checkpoints can't be kept: at least 1 must be", keep));
  remove_partials_if([&](const StepName& name) { return name.step <= published_; });
  const auto checkpoints = list();
  if (std::ranges::count_if(checkpoints, [](const Listed& it) { return it.manifest.has_value(); }) <= keep) return;
  int good = 0;
  std::int64_t last = -1;
  for (const auto& checkpoint : checkpoints) {
    if (!checkpoint.manifest) continue;
    const bool has_successor = checkpoint.step == last;  // an old one that was about to go
    if (good < keep && !has_successor) {
      if (!is_good(checkpoint, here)) continue;
      last = checkpoint.step;
      ++good;
    } else {
      remove(checkpoint.path);
      verified_.erase(checkpoint.path);
    }
  }
}

void Checkpoints::remove_partials() const {
  remove_partials_if([](const StepName&) { return true; });
}

template <typename Which>
void Checkpoints::remove_partials_if(const Which& which) const {
  for (const auto& name : names_in(folder_)) {
    if (name.kind == Kind::kPartial && which(name)) remove_hidden(folder_ / text_of(name));
  }
}

void Checkpoints::remove(const fs::path& path) const {
  const auto name = parse_step_name(path.filename().string());
  if (!name || path.parent_path() != folder_) {
    throw DataError(fmt::format("{} is no checkpoint in {}", path.string(), folder_.string()));
  }
  const auto hidden = folder_ / text_of({Kind::kPartial, name->step, "removed-" + new_token()});
  rename_folder(path, hidden);
  sync_folder(folder_);  // before its files go: after a power failure it must not have its name without them
  remove_hidden(hidden);
}

std::string new_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 2; ++i) token += fmt::format("{:08x}", random());
  return token;
}

Manifest verify(const fs::path& checkpoint, const Workers& here) {
  auto manifest = read_manifest(checkpoint);
  check_files(manifest, here, checkpoint);
  return manifest;
}

void require_space(const fs::path& path, std::int64_t bytes) {
  auto folder = fs::absolute(path);
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) {
    throw DataError(fmt::format("can't tell how much space {} has: {}", folder.string(), std::strerror(errno)));
  }
  const auto free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  if (free >= static_cast<double>(bytes)) return;
  throw DataError(fmt::format("{} has room for {}, and a checkpoint needs {}: make room, or choose another folder",
                              path.string(), human_bytes(free), human_bytes(static_cast<double>(bytes))));
}

}  // namespace co2::checkpoint
