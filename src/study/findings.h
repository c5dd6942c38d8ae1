#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "study/plan.h"
#include "study/results.h"
#include "study/selection.h"
#include "study/statistics.h"
#include "study/study_file.h"

namespace co2::study {

/// What results say about a row.
struct Finding {
  const Row* row = nullptr;
  bool is_reference = false;
  Selection selection;
  std::vector<const Result*> results;  ///< of the chosen trial's runs that are done
  std::size_t missing = 0;             ///< runs without a result, also because no trial has been chosen
  std::size_t failed = 0;
  std::size_t diverged = 0;  ///< done, but with a metric that is not finite
  Sample metric;             ///< over the seeds, of those that did not diverge

  std::optional<PairedTest> test;  ///< against the reference; none for the reference itself, or without a common seed
  double percent = 0;              ///< that test's difference, of the reference's mean over the same seeds

  std::optional<double> step_seconds;  ///< on the link

  const Trial* trial() const { return selection.trial ? &row->trials[*selection.trial] : nullptr; }
};

struct Findings {
  std::vector<Finding> rows;                    ///< in the order of the plan
  std::optional<double> compute_seconds;        ///< of a step, as the link's times suppose it
  std::map<std::string, std::size_t> versions;  ///< that results are of, and how many
  std::set<std::string> processors;
  std::size_t done = 0;     ///< runs, those of trials included
  double wall_seconds = 0;  ///< of all of them, one after the other

  std::size_t missing() const;
};

/// Throws DataError if a result does not have the study's metric.
Findings findings_of(const StudyFile& file, const Plan& plan, const Results& results);

/// "within noise", "better", "worse", or why nothing can be said.
std::string verdict(const Finding& finding, bool higher_is_better);

}  // namespace co2::study
