#pragma once

#include <co2/cluster.h>
#include <co2/core.h>
#include <co2/state.h>
#include <co2/synchronizer.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace co2 {

struct SaverOptions {
  int keep = 2;  ///< checkpoints that are kept, the newest ones, >= 1
  /// For those who look at a checkpoint: the task, the model, …
  std::vector<std::pair<std::string, std::string>> about = {};
};

/// What became of a save().
struct SaveReport {
  std::int64_t step = 0;
  std::int64_t bytes = 0;      ///< that this worker has written
  double stalled_seconds = 0;  ///< that training stood still on this worker
  double written_seconds = 0;  ///< from then until it was published, in the background
  std::filesystem::path path;  ///< of the checkpoint; empty if there is none
  std::string problem;         ///< why not; empty if all went well
};

/// A checkpoint that restore() could not use, and why.
using PassedOver = std::pair<std::filesystem::path, std::string>;

/// Saves a run into a folder and goes on from there, to the same bits: parameters, the inner optimizer's state,
/// everything between workers, also what is on the wire, and whatever you add. docs/checkpoints.md has the promise and
/// the format.
///
///     co2::Saver saver(cluster, "runs/mine");
///     std::int64_t position = 0;
///     const auto mine = [&](co2::StateVisitor& visitor) { visitor.number("position", position); };
///     saver.restore(sync, mine);                          // of the newest checkpoint that is good on all workers
///     while (position < end) {
///       ... backward of batch `position++` ...; sync.step();
///       if (position % 100 == 0) saver.save(sync, mine);  // training stands still for a copy in memory only
///     }
///     saver.wait();
///
/// Every worker writes what it has into RUN/checkpoints/step-…; the folder may be one that all share, or one on every
/// machine, and belongs to this Saver alone. (A second model in the same run is something of yours: show it with
/// `mine`, by its Synchronizer::visit().) Everything is collective: all workers make a Saver, and call the same at the
/// same step.
///
/// Thread safety: used by the training thread. Writing goes on in a thread of its own.
class Saver {
 public:
  /// Shows a user's own state to a visitor, which writes or reads it.
  using Mine = std::function<void(StateVisitor&)>;

  /// Touches nothing but the folder itself, which is made. Throws DataError, OptionError.
  Saver(const Cluster& cluster, const std::filesystem::path& run, const SaverOptions& options = {});
  /// Waits for what is being written.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Copies all that there is, and begins to write it: between steps, because gradients are no part of it. What is on
  /// the wire is added when it has arrived. Waits for the save() before. A disk that is full, say, is no reason to end
  /// a run: reports() tells, and nothing is published.
  void save(Synchronizer& sync, const Mine& mine = {});
  /// For a Core whose inner optimizer's state `inner` shows.
  void save(Core& core, const Mine& inner, const Mine& mine);

  /// Puts the newest checkpoint in place that all workers have and find good. The step that it is of; nothing if there
  /// is no checkpoint at all. Throws DataError if there are some, but none is good, or if it does not fit.
  ///
  /// If the newest is of another number of workers, another island_size or zero, what was in flight is applied first:
  /// every worker begins with the model that finish() would have left, with the outer momentum, and with the mean of
  /// the inner states. Rank 0 reads all files then, and needs the memory of all workers that wrote them. `mine` is
  /// shown what worker 0 had.
  std::optional<std::int64_t> restore(Synchronizer& sync, const Mine& mine = {});
  std::optional<std::int64_t> restore(Core& core, const Mine& inner, const Mine& mine);
  /// Whether the last restore(), or the one that is under way, is of a checkpoint of another layout.
  bool reshapes() const;
  /// Newer ones that the last restore() could not use.
  const std::vector<PassedOver>& passed_over() const;

  /// Waits until everything is on disk, the network included. The Synchronizer or Core of the last save() must still be
  /// there.
  void wait();
  /// Of those that ended since the last call.
  std::vector<SaveReport> reports();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace co2
