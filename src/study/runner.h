#pragma once

#include <filesystem>

#include "study/plan.h"
#include "study/results.h"
#include "study/study_file.h"

namespace co2::study {

struct RunnerOptions {
  std::filesystem::path folder;  ///< of the results
  int jobs = 1;                  ///< runs side by side, each on a core of its own
};

/// Runs what has no result yet, each as a process, and adds what becomes of it to `results`: the tries of a row, then,
/// with the values of the best trial, its runs. A run that fails is recorded, and tried again the next time. Returns
/// the exit code: 0, 1 if a run failed or could not be made, 128 + signal if it was stopped, with everything kept that
/// was finished.
///
/// Throws DataError if results can't be written. Thread safety: call it from a process with a single thread.
int run_study(const StudyFile& file, const Plan& plan, Results& results, const RunnerOptions& options);

}  // namespace co2::study
