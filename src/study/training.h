#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <vector>

#include "study/plan.h"
#include "study/result.h"

namespace co2::study {

/// A run as a process: co2 train with virtual workers. While it lives, its files are in `folder`, under its key; what
/// is left of one that failed is its log.
class Training {
 public:
  /// Starts it on these cores, with one thread. Throws DataError or ClusterError if that is not possible.
  Training(const Run& run, const std::filesystem::path& folder, const std::vector<int>& cores, const sigset_t& mask);
  ~Training();  ///< whatever is still running ends, without a result
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void signal(int number) const;  ///< to it and all that it has started

  /// What became of it, once it has ended; never waits.
  std::optional<Result> result();
  /// What it took of the processor: what it would have taken alone, however busy the machine was. Once it has ended.
  double processor_seconds() const { return processor_seconds_; }

 private:
  Result outcome(int status) const;

  const Run& run_;
  const std::filesystem::path results_;  // folder of co2 train
  const std::filesystem::path config_;
  const std::filesystem::path log_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  pid_t pid_ = 0;
  double processor_seconds_ = 0;
};

/// How long runs take on one core of this machine, if nobody else uses it.
struct Speed {
  double sample_seconds = 0;  ///< each sample of each worker
  double run_seconds = 0;     ///< what a run takes besides: starting, validation, writing
};

/// Measured with a few steps of one worker of that run, which take some seconds. Throws Error with what the program has
/// to say if it fails.
Speed measure_speed(const Run& run);

}  // namespace co2::study
