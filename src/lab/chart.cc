#include "lab/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "lab/look.h"
#include "lab/panel.h"

namespace co2::lab {

namespace {

constexpr double kDecadeToUnlimited = 0.6;

Series series_of(const Item& item) {
  Look look = look_of(item.peer() ? item.peer_name : item.strategy);
  if (!item.wire.empty()) look.dashes = "2 3";
  return {
      .label = item.label, .colour = look.colour, .dashes = look.dashes, .width = item.strategy == "co2" ? 3.0 : 1.8};
}

/// Where the rates stand on the axis: by their logarithm, `unlimited` some way to the right of the fastest; scenarios
/// that are no single number, side by side.
std::vector<double> places_of(const std::vector<Scenario>& scenarios, Axis& axis) {
  std::vector<double> places;
  const bool numbers = std::all_of(scenarios.begin(), scenarios.end(), [](const Scenario& s) { return s.constant(); });
  double fastest = 0;
  for (const Scenario& scenario : scenarios) fastest = std::max(fastest, scenario.slowest().bits_per_second);
  const double beyond = fastest > 0 ? std::log10(fastest) + kDecadeToUnlimited : 0;
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    const Rate rate = scenarios[i].slowest();
    const double place = !numbers           ? static_cast<double>(i)
                         : rate.unlimited() ? beyond
                                            : std::log10(rate.bits_per_second);
    places.push_back(place);
    axis.ticks.emplace_back(place,
                            numbers && !rate.unlimited() ? format_rate(rate.bits_per_second) : scenarios[i].text);
  }
  const auto [low, high] = std::minmax_element(places.begin(), places.end());
  const double margin = *low == *high ? 0.5 : 0.06 * (*high - *low);
  axis.low = *low - margin;
  axis.high = *high + margin;
  return places;
}

Panel throughput(const LabOptions& options, const std::vector<Table>& tables) {
  Panel panel{.title = fmt::format("Throughput against bandwidth, {} workers", options.workers),
              .x = {.title = "speed of each link"},
              .y = {.title = options.words.unit + " per second, all workers"},
              .series = {}};
  const auto places = places_of(options.scenarios, panel.x);
  double highest = 1;
  for (std::size_t item = 0; item < options.items.size(); ++item) {
    Series series = series_of(options.items[item]);
    series.markers = true;
    for (const Table& table : tables) {
      for (const Row& row : table.rows) {
        if (row.item != item || row.units_per_second.count == 0) continue;
        series.points.push_back({places[table.scenario], row.units_per_second.median});
        highest = std::max(highest, row.units_per_second.median);
      }
    }
    std::sort(series.points.begin(), series.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    panel.series.push_back(std::move(series));
  }
  panel.y.high = 1.05 * highest;
  return panel;
}

std::size_t slowest(const LabOptions& options, const std::vector<Table>& tables) {
  std::size_t result = 0;
  double lowest_rate = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < options.scenarios.size(); ++i) {
    const Rate rate = options.scenarios[i].slowest();
    if (tables[i].rows.empty() || rate.unlimited() || rate.bits_per_second >= lowest_rate) continue;
    lowest_rate = rate.bits_per_second;
    result = i;
  }
  return result;
}

std::string capitalised(std::string word) {
  if (!word.empty()) word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
  return word;
}

Panel losses(const LabOptions& options, const std::vector<RunRecord>& records, const std::vector<Table>& tables) {
  const std::size_t scenario = slowest(options, tables);
  Panel panel{
      .title = fmt::format("{} against time at {}", capitalised(options.words.loss), options.scenarios[scenario].text),
      .x = {.title = "seconds of training"},
      .y = {.title = fmt::format("training {}, smoothed", options.words.loss)},
      .series = {}};
  for (std::size_t item = 0; item < options.items.size(); ++item) {
    if (options.items[item].steps) continue;
    const auto run = std::find_if(records.begin(), records.end(), [&](const RunRecord& record) {
      return record.scenario == scenario && record.item == item && record.figures;
    });
    if (run == records.end()) continue;
    Series series = series_of(options.items[item]);
    for (const CurvePoint& point : run->figures->curve) series.points.push_back({point.seconds, point.loss});
    panel.series.push_back(std::move(series));
  }
  fit(panel);
  return panel;
}

}  // namespace

std::string chart(const LabOptions& options, const std::vector<RunRecord>& records, const std::vector<Table>& tables) {
  return picture(
      {throughput(options, tables), losses(options, records, tables)}, options.items.size(),
      fmt::format("Throughput against bandwidth, and {} against time, for every strategy", options.words.loss));
}

}  // namespace co2::lab
