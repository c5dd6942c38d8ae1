#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/plan.h"
#include "study/results.h"

namespace co2::study {

/// Which trial of a row is the best, as far as results tell.
struct Selection {
  bool open = false;                 ///< some tries have not been made yet
  std::optional<std::size_t> trial;  ///< none: it is open, or no trial led to a finite number
  std::vector<double> scores;        ///< by trial, the mean over its tries; NaN: there is none, or it diverged
};

/// A row with nothing to choose has its one trial.
Selection select(const Row& row, const Results& results, const std::string& metric, bool higher_is_better);

/// Where a better value may lie beyond those that were tried: "learning_rate = 0.008 is the highest that was tried". Of
/// lists of three numbers or more.
std::vector<std::string> at_the_edge(const Row& row, const Trial& chosen);

}  // namespace co2::study
