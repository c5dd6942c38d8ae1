#include "study/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace co2::study {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// NaN if one of them is missing, has failed or diverged.
double mean_of_tries(const Trial& trial, const Results& results, const std::string& metric) {
  double sum = 0;
  for (const Run& run : trial.tries) {
    const Result* result = results.done(run.key);
    if (result == nullptr) return kNone;
    sum += result->metric(metric) / static_cast<double>(trial.tries.size());
  }
  return std::isfinite(sum) ? sum : kNone;
}

}  // namespace

Selection select(const Row& row, const Results& results, const std::string& metric, bool higher_is_better) {
  Selection selection;
  if (row.trials[0].tries.empty()) {
    selection.trial = 0;
    return selection;
  }
  for (const Trial& trial : row.trials) {
    for (const Run& run : trial.tries) selection.open |= results.find(run.key) == nullptr;
    selection.scores.push_back(mean_of_tries(trial, results, metric));
  }
  if (selection.open) return selection;
  for (std::size_t i = 0; i < selection.scores.size(); ++i) {
    const double score = selection.scores[i];
    if (std::isnan(score)) continue;
    const double best = selection.trial ? selection.scores[*selection.trial] : kNone;
    if (std::isnan(best) || (higher_is_better ? score > best : score < best)) selection.trial = i;
  }
  return selection;
}

std::vector<std::string> at_the_edge(const Row& row, const Trial& chosen) {
  std::vector<std::string> notes;
  for (const auto& [option, value] : chosen.values.items()) {
    std::set<double> tried;
    for (const Trial& trial : row.trials) {
      if (trial.values[option].is_number()) tried.insert(trial.values[option].get<double>());
    }
    if (tried.size() < 3) continue;
    const bool lowest = value.get<double>() == *tried.begin();
    const bool highest = value.get<double>() == *tried.rbegin();
    if (lowest || highest) {
      notes.push_back(
          fmt::format("{} = {} is the {} that was tried", option, value.dump(), lowest ? "lowest" : "highest"));
    }
  }
  return notes;
}

}  // namespace co2::study
