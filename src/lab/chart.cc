#include "lab/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>

#include "lab/panel.h"

namespace co2::lab {

namespace {

constexpr double kLabelColumn = 190;  // to the right of a panel
constexpr double kDecadeToUnlimited = 0.6;

struct Look {
  std::string colour;
  std::string dashes;
};

/// Okabe and Ito's colours, which most people can tell apart, without the yellow that white paper swallows.
Look look_of(const Item& item) {
  static const std::map<std::string, Look> kLooks = {{"none", {"#767676", "5 4"}},
                                                     {"ddp", {"#000000", ""}},
                                                     {"local-sgd", {"#b07500", ""}},
                                                     {"slowmo", {"#3a95d0", ""}},
                                                     {"diloco", {"#b5508a", ""}},
                                                     {"streaming-diloco", {"#009e73", ""}},
                                                     {"overlap-local-sgd", {"#7a5a9e", ""}},
                                                     {"co2-paper", {"#0072b2", ""}},
                                                     {"co2", {"#d55e00", ""}},
                                                     {"torch-none", {"#767676", "9 4"}},
                                                     {"torch-ddp", {"#000000", "9 4"}},
                                                     {"torch-ddp-bf16", {"#7a5a9e", "9 4"}},
                                                     {"torch-post-local-sgd", {"#b07500", "9 4"}},
                                                     {"torchft-local-sgd", {"#3a95d0", "9 4"}},
                                                     {"torchft-diloco", {"#b5508a", "9 4"}},
                                                     {"torchft-diloco-overlap", {"#0072b2", "9 4"}},
                                                     {"torchft-streaming", {"#009e73", "9 4"}}};
  Look look = kLooks.at(item.peer() ? item.peer_name : item.strategy);
  if (!item.wire.empty()) look.dashes = "2 3";
  return look;
}

Series series_of(const Item& item) {
  const Look look = look_of(item);
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

/// Fits the axes to the lines: the steep beginning is cut off, and a line that takes many times as long as another is
/// shown on a logarithmic axis.
void fit(Panel& panel) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  double shortest = low;
  double longest = 0;
  double earliest = low;
  for (const Series& series : panel.series) {
    if (series.points.empty()) continue;
    const auto past_beginning = series.points.begin() + static_cast<std::ptrdiff_t>(series.points.size() / 12);
    for (auto point = past_beginning; point != series.points.end(); ++point) {
      low = std::min(low, point->y);
      high = std::max(high, point->y);
    }
    shortest = std::min(shortest, series.points.back().x);
    longest = std::max(longest, series.points.back().x);
    earliest = std::min(earliest, past_beginning->x);
  }
  if (!(longest > 0)) return;
  const double margin = std::max(0.05 * (high - low), 1e-3);
  panel.y.low = low - 2 * margin;  // room for labels
  panel.y.high = high + margin;
  panel.x.logarithmic = longest > 4 * shortest;
  panel.x.low = panel.x.logarithmic ? std::max(earliest / 2, longest / 1000) : 0;
  panel.x.high = longest;
  for (Series& series : panel.series) std::erase_if(series.points, [&](const Point& p) { return p.x < panel.x.low; });
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
  const double height = std::max(330.0, 18.0 * static_cast<double>(options.items.size()));
  Panel left = throughput(options, tables);
  Panel right = losses(options, records, tables);
  for (Panel* panel : {&left, &right}) {
    panel->top = 60;
    panel->width = 380;
    panel->height = height;
  }
  left.left = 90;
  right.left = left.left + left.width + kLabelColumn + 80;
  const double whole_width = right.left + right.width + kLabelColumn;
  const double whole_height = right.top + height + 65;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
             "height=\"{1:.0f}\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"13\" "
             "role=\"img\" aria-label=\"Throughput against bandwidth, and {2} against time, for every strategy\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             whole_width, whole_height, escape(options.words.loss)) +
         draw(left, 1) + draw(right, 2) + "</svg>\n";
}

}  // namespace co2::lab
