#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/rename.h"

namespace co2::checkpoint {

/// Whose files must be here. Nothing means all workers'. Where workers share no file system, each has a few of a
/// checkpoint's files, and the same manifest.
using Workers = std::optional<std::vector<int>>;

/// A checkpoint as list() finds it: with a manifest, or the reason why it is no good.
struct Listed {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::optional<Manifest> manifest;
  std::string problem{};
};

struct NewestGood {
  std::optional<std::filesystem::path> path;  ///< none: no checkpoint is good
  Manifest manifest{};
  std::vector<std::pair<std::filesystem::path, std::string>>
      passed_over{};  ///< newer ones, and what is wrong with them
};

/// The checkpoints of one run: RUN/checkpoints/step-000000000120 and so on.
///
///     token = new_token()                      one worker, which tells the others
///     folder = begin(step, token)              every worker
///     entry = write_part(folder, worker, …)    every worker, which tells a publisher
///     publish(token, manifest)                 one worker per file system
///     prune(keep)                              the same one
///
/// Invariants: a name that list() shows is that of a whole checkpoint, whenever a process is killed. Once one was
/// published, there always is one. Everything else has a hidden name, and is removed by whoever comes next.
///
/// Thread safety: none. Several processes may use one folder in the way above.
class Checkpoints {
 public:
  /// Touches nothing.
  explicit Checkpoints(const std::filesystem::path& run, Replace replace = Replace::kSwap);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path path_of(std::int64_t step) const;

  /// Makes the folder that workers write their parts of this step into, unless another worker has made it, and removes
  /// what earlier attempts with other tokens left. Throws DataError.
  std::filesystem::path begin(std::int64_t step, const std::string& token) const;

  /// Gives an attempt up, and with it the space that it took. Throws DataError.
  void discard(std::int64_t step, const std::string& token) const;

  /// Makes a checkpoint of what begin() made: its parts, which are on disk, and this manifest, whose `co2` is filled
  /// in. One of the same step is replaced; at every moment list() shows one of them. Throws DataError, also if a file
  /// that must be here is missing, or not as long as the manifest says; then nothing is published.
  std::filesystem::path publish(const std::string& token, Manifest manifest, const Workers& here = std::nullopt);

  /// The newest first. Reads manifests only: verify() tells whether the files are right. Throws DataError.
  std::vector<Listed> list() const;

  /// The one of this step, as list() finds it. Throws DataError, which says of which steps there are some.
  Listed of_step(std::int64_t step) const;

  /// The newest one whose files are right. Throws DataError if the folder itself can't be read.
  NewestGood newest_good(const Workers& here = std::nullopt) const;

  /// Removes the oldest checkpoints, so that `keep` (1 or more) good ones are left. What counts as good has been
  /// verified, once by the same object: only that is a reason to remove another one. One whose manifest is no good
  /// stays, for a person to look at. Removes also what attempts and removals left, up to the step that this object has
  /// published last: of later steps, other workers may be writing already. Throws DataError.
  void prune(int keep, const Workers& here = std::nullopt);

  /// Removes what attempts and removals left, of any step: when no worker writes, such as at the start of a run.
  void remove_partials() const;

  /// Removes one checkpoint, as a whole or not at all. Throws DataError.
  void remove(const std::filesystem::path& path) const;

 private:
  std::string problem_of(const Listed& checkpoint, const Workers& here) const;  // empty: none
  bool is_good(const Listed& checkpoint, const Workers& here);
  template <typename Which>
  void remove_partials_if(const Which& which) const;

  std::filesystem::path folder_;
  Replace replace_;
  std::int64_t published_ = -1;  // last step
  std::map<std::filesystem::path, Manifest> verified_;
};

/// 16 random letters and digits, unlike those of any other attempt.
std::string new_token();

/// Reads all files, or those of some workers, and compares. Throws DataError that names the first that is missing,
/// truncated or changed. Returns the manifest.
Manifest verify(const std::filesystem::path& checkpoint, const Workers& here = std::nullopt);

/// Throws DataError that says how much there is unless so many bytes can be written there. The path need not exist yet.
void require_space(const std::filesystem::path& path, std::int64_t bytes);

}  // namespace co2::checkpoint
