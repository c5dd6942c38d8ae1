#include "study/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace co2::study {

namespace {

std::map<std::uint64_t, double> finite_by_seed(const Finding& finding, const std::string& metric) {
  std::map<std::uint64_t, double> values;
  for (const Result* result : finding.results) {
    const double value = result->metric(metric);
    if (std::isfinite(value)) values[result->config.at("seed").get<std::uint64_t>()] = value;
  }
  return values;
}

Finding look_at(const Row& row, const StudyFile& file, const Results& results) {
  Finding finding;
  finding.row = &row;
  finding.selection = select(row, results, file.metric, file.higher_is_better);
  if (finding.trial() == nullptr) {
    finding.missing = row.trials[0].runs.size();
    return finding;
  }
  for (const Run& run : finding.trial()->runs) {
    const Result* result = results.find(run.key);
    if (result == nullptr) {
      ++finding.missing;
    } else if (!result->done()) {
      ++finding.failed;
    } else {
      finding.results.push_back(result);
    }
  }
  std::vector<double> values;
  for (const auto& [seed, value] : finite_by_seed(finding, file.metric)) values.push_back(value);
  finding.diverged = finding.results.size() - values.size();
  finding.metric = sample_of(values);
  return finding;
}

void compare(Finding& finding, const Finding& reference, const std::string& metric) {
  const auto mine = finite_by_seed(finding, metric);
  const auto others = finite_by_seed(reference, metric);
  std::vector<double> first;
  std::vector<double> second;
  for (const auto& [seed, value] : mine) {
    const auto other = others.find(seed);
    if (other == others.end()) continue;
    first.push_back(value);
    second.push_back(other->second);
  }
  if (first.empty()) return;
  finding.test = paired_test(first, second);
  finding.percent = 100 * finding.test->difference / std::abs(sample_of(second).mean);
}

/// As the reference's workers took it here, each on a core: they had it in turns.
std::optional<double> measured_step_seconds(const Findings& findings, const std::string& reference) {
  std::vector<double> seconds;
  for (const Finding& finding : findings.rows) {
    if (finding.row->name != reference) continue;
    for (const Result* result : finding.results) {
      seconds.push_back(result->training_seconds / (result->steps() * result->workers()));
    }
  }
  if (seconds.empty()) return std::nullopt;
  return sample_of(seconds).mean;
}

void count_runs(Findings& findings, const Results& results) {
  std::set<std::string> seen;
  const auto count = [&](const Run& run) {
    const Result* result = results.done(run.key);
    if (result == nullptr || !seen.insert(run.key).second) return;
    ++findings.done;
    findings.wall_seconds += result->wall_seconds;
    ++findings.versions[result->version];
    findings.processors.insert(result->processor);
  };
  for (const Finding& finding : findings.rows) {
    for (const Trial& trial : finding.row->trials) std::ranges::for_each(trial.tries, count);
    if (finding.trial() != nullptr) std::ranges::for_each(finding.trial()->runs, count);
  }
}

}  // namespace

std::size_t Findings::missing() const {
  std::size_t sum = 0;
  for (const Finding& finding : rows) sum += finding.missing + finding.failed;
  return sum;
}

Findings findings_of(const StudyFile& file, const Plan& plan, const Results& results) {
  Findings findings;
  for (const Row& row : plan.rows) findings.rows.push_back(look_at(row, file, results));
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const std::size_t reference = plan.rows[i].reference;
    findings.rows[i].is_reference = reference == i;
    if (reference != i) compare(findings.rows[i], findings.rows[reference], file.metric);
  }
  count_runs(findings, results);
  if (!file.link) return findings;
  findings.compute_seconds =
      file.link->step_seconds ? file.link->step_seconds : measured_step_seconds(findings, file.reference);
  if (!findings.compute_seconds) return findings;
  for (Finding& finding : findings.rows) {
    if (finding.results.empty()) continue;
    const Result& any = *finding.results.front();  // they differ in their seeds alone
    finding.step_seconds =
        step_seconds(any.pattern(), *findings.compute_seconds, any.bytes_per_step, file.link->rate.bits_per_second);
  }
  return findings;
}

std::string verdict(const Finding& finding, bool higher_is_better) {
  if (finding.selection.open) return "trials are missing";
  if (!finding.selection.trial) return "no trial succeeded";
  if (finding.diverged > 0) return fmt::format("{} diverged", finding.diverged);
  if (finding.results.empty()) return "runs are missing";
  if (finding.is_reference) return "the reference";
  if (!finding.test) return "no seed in common";
  if (finding.test->pairs < 2) return "too few seeds";
  if (!finding.test->significant()) return "within noise";
  return (finding.test->difference > 0) == higher_is_better ? "better" : "worse";
}

}  // namespace co2::study
