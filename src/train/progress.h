#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "train/task_type.h"

namespace co2::train {

/// What the progress line shows. Values that are not known yet are NaN.
struct ProgressState {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0;
  std::vector<double> metrics = {};  ///< of the newest validation, one for each of TaskWords::metrics; none yet: empty
  double units_per_second = 0;       ///< summed over workers
  double overlap = 0;                ///< 0..1
  int local_steps = 0;
  double seconds_left = 0;
};

/// One live line on a terminal, plain lines at sensible intervals elsewhere. Only rank 0 makes one.
class Progress {
 public:
  /// Writes to `stream` (stderr). A terminal gets a live line, fitted to its width; anything else plain lines.
  Progress(std::FILE* stream, TaskWords words);
  ~Progress();                              ///< ends the live line
  void update(const ProgressState& state);  ///< cheap; redraws at most ten times a second
  void message(const std::string& line);    ///< a line of its own, above the live one
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace co2::train
