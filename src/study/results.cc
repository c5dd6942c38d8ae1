#include "study/results.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "train/folders.h"

namespace co2::study {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw DataError(fmt::format("can't write {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

Results Results::read(const std::filesystem::path& folder, const Complete& complete) {
  Results results(folder / kFile);
  if (std::filesystem::exists(results.path_)) results.load(complete);
  return results;
}

Results Results::open(const std::filesystem::path& folder, const Complete& complete) {
  train::ensure_writable(folder);
  Results results(folder / kFile);
  results.lock_.emplace(folder, fmt::format("another co2 study is at work in {}", folder.string()),
                        "wait for its end, or say --out DIR for another folder");
  results.file_ = Descriptor(::open(results.path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (results.file_.get() < 0) fail(results.path_);
  const std::size_t whole = results.load(complete);
  if (ftruncate(results.file_.get(), static_cast<off_t>(whole)) != 0) fail(results.path_);
  return results;
}

std::size_t Results::load(const Complete& complete) {
  const std::string text = read_file(path_);
  std::size_t begin = 0;
  for (std::size_t number = 1; begin < text.size(); ++number) {
    const auto end = text.find('\n', begin);
    if (end == std::string::npos) {
      warnings_.push_back(fmt::format("{}: its last line was cut off, and does not count", path_.string()));
      break;
    }
    add_line(text.substr(begin, end - begin), number, complete);
    begin = end + 1;
  }
  return begin;
}

/// The key is taken anew from the configuration, as options may have been added since, with a default that it had too.
void Results::add_line(const std::string& line, std::size_t number, const Complete& complete) {
  Result result;
  try {
    result = result_from_json(nlohmann::ordered_json::parse(line));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}, line {} is no result of a run: {}. Remove the line, and it is run again",
                                path_.string(), number, error.what()));
  }
  Settings settings;
  for (const auto& [option, value] : result.config.items()) settings[option] = {value, ""};
  try {
    result.key = run_with(settings, complete).key;
  } catch (const OptionError& error) {
    warnings_.push_back(
        fmt::format("{}, line {} is of an earlier co2, and does not count: {}", path_.string(), number, error.what()));
    return;
  }
  by_key_[result.key] = std::move(result);
}

void Results::append(const Result& result) {
  const std::string line =
      to_json(result).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const off_t before = lseek(file_.get(), 0, SEEK_END);
  const ssize_t written = write(file_.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    const int cause = written < 0 ? errno : ENOSPC;
    if (ftruncate(file_.get(), before) == 0) errno = cause;  // half a line would make the next one unreadable too
    fail(path_);
  }
  if (fsync(file_.get()) != 0) fail(path_);
  by_key_[result.key] = result;
}

const Result* Results::find(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &found->second;
}

const Result* Results::done(const std::string& key) const {
  const Result* result = find(key);
  return result != nullptr && result->done() ? result : nullptr;
}

}  // namespace co2::study
