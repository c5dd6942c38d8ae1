#include "study/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "lab/look.h"
#include "lab/panel.h"

namespace co2::study {

namespace {

struct MeanPoint {
  double step = 0;
  Sample loss;
};

/// At steps that all seeds have a finite loss of. They take the same steps, so that is where they did not diverge.
std::vector<MeanPoint> mean_curve(const Finding& finding) {
  std::map<double, std::vector<double>> by_step;
  for (const Result* result : finding.results) {
    for (const CurvePoint& point : result->curve) {
      if (std::isfinite(point.loss)) by_step[point.step].push_back(point.loss);
    }
  }
  std::vector<MeanPoint> curve;
  for (const auto& [step, losses] : by_step) {
    if (losses.size() == finding.results.size()) curve.push_back({step, sample_of(losses)});
  }
  return curve;
}

bool is_drawn(const StudyFile& file, const Row& row) {
  return file.drawn.empty() || std::ranges::find(file.drawn, row.label) != file.drawn.end();
}

/// Rows of one strategy have its colour, and differ in their dashes.
lab::Series series_of(const Finding& finding, std::size_t before_of_strategy) {
  static constexpr std::array kDashes{"", "7 3", "2 3", "9 3 2 3"};
  const std::string strategy = finding.row->config().at("strategy").get<std::string>();
  lab::Look look = lab::look_of(strategy);
  if (before_of_strategy > 0) look.dashes = kDashes[before_of_strategy % kDashes.size()];
  return {.label = finding.row->label,
          .colour = look.colour,
          .dashes = look.dashes,
          .width = strategy == "co2" ? 3.0 : 1.8};
}

/// `scale`: from steps to what the axis shows; 0: the row is not there.
void add_lines(lab::Panel& panel, const StudyFile& file, const Findings& findings,
               const std::function<double(const Finding&)>& scale) {
  std::map<std::string, std::size_t> of_strategy;
  for (const Finding& finding : findings.rows) {
    if (!is_drawn(file, *finding.row)) continue;
    const std::size_t before = of_strategy[finding.row->config().at("strategy").get<std::string>()]++;
    if (finding.results.empty() || scale(finding) == 0) continue;
    lab::Series series = series_of(finding, before);
    for (const MeanPoint& point : mean_curve(finding)) {
      const double x = point.step * scale(finding);
      series.points.push_back({x, point.loss.mean});
      if (point.loss.count < 2) continue;
      series.band.push_back({x, point.loss.mean - point.loss.deviation, point.loss.mean + point.loss.deviation});
    }
    panel.series.push_back(std::move(series));
  }
  fit(panel);
}

}  // namespace

std::string chart(const StudyFile& file, const Findings& findings, const train::TaskWords& words) {
  const std::string loss = fmt::format("training {}, smoothed", words.loss);
  std::vector<lab::Panel> panels;
  panels.push_back(
      {.title = "Against samples", .x = {.title = "samples, all workers"}, .y = {.title = loss}, .series = {}});
  add_lines(panels.back(), file, findings, [](const Finding& f) { return f.results.front()->samples_per_step(); });
  if (findings.compute_seconds) {
    panels.push_back(
        {.title = fmt::format("Against time on links of {}", lab::format_rate(file.link->rate.bits_per_second)),
         .x = {.title = fmt::format("seconds, with {:.3g} s of computation in a step", *findings.compute_seconds)},
         .y = {.title = loss},
         .series = {}});
    add_lines(panels.back(), file, findings, [](const Finding& f) { return f.step_seconds.value_or(0); });
  }
  const auto lines = static_cast<std::size_t>(
      std::ranges::count_if(findings.rows, [&](const Finding& f) { return is_drawn(file, *f.row); }));
  return lab::picture(std::move(panels), lines,
                      fmt::format("{}: {} against samples and against time, for every row", file.name, words.loss));
}

}  // namespace co2::study
