#include "lab/aggregate.h"

#include <algorithm>
#include <cmath>

namespace co2::lab {

namespace {

using Records = std::vector<const RunRecord*>;

Records done_runs(const std::vector<RunRecord>& records, std::size_t scenario, std::size_t item) {
  Records result;
  for (const RunRecord& record : records) {
    if (record.scenario == scenario && record.item == item && record.figures) result.push_back(&record);
  }
  return result;
}

/// The row that ratios are taken to: the plain strategy if it is there, whatever number of steps it takes.
std::optional<std::size_t> reference(const std::vector<Item>& items, const std::string& strategy) {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Item& item) { return item.strategy == strategy && item.wire.empty(); });
  if (found == items.end()) return std::nullopt;
  return static_cast<std::size_t>(found - items.begin());
}

template <typename Value>
Spread over(const Records& runs, Value value) {
  std::vector<double> values;
  for (const RunRecord* run : runs) values.push_back(value(*run->figures));
  return spread_of(std::move(values));
}

/// What differs from repeat to repeat, such as a clock rate, differs for both of a pair alike.
Spread ratios(const Records& runs, const Records& references) {
  std::vector<double> values;
  for (const RunRecord* run : runs) {
    for (const RunRecord* other : references) {
      if (other->repeat != run->repeat) continue;
      values.push_back(run->figures->units_per_second / other->figures->units_per_second);
    }
  }
  return spread_of(std::move(values));
}

double common_target(const std::vector<RunRecord>& records, std::size_t scenario, const std::vector<Item>& items) {
  double target = Figures::kUnknown;
  for (std::size_t item = 0; item < items.size(); ++item) {
    if (items[item].steps) continue;
    for (const RunRecord* run : done_runs(records, scenario, item)) {
      target = std::fmax(target, lowest(run->figures->curve));
    }
  }
  return target;
}

}  // namespace

Table aggregate(const std::vector<RunRecord>& records, std::size_t scenario, const std::vector<Item>& items,
                std::optional<double> target_loss) {
  Table table{
      .scenario = scenario, .target_loss = target_loss.value_or(common_target(records, scenario, items)), .rows = {}};
  const auto none = reference(items, "none");
  const auto ddp = reference(items, "ddp");
  for (std::size_t item = 0; item < items.size(); ++item) {
    const Records runs = done_runs(records, scenario, item);
    Row row;
    row.item = item;
    row.done = static_cast<int>(runs.size());
    for (const RunRecord& record : records) {
      if (record.scenario == scenario && record.item == item && record.end.kind == RunEnd::Kind::kFailed) ++row.failed;
    }
    if (row.runs() == 0) continue;
    row.units_per_second = over(runs, [](const Figures& f) { return f.units_per_second; });
    if (none) row.to_none = ratios(runs, done_runs(records, scenario, *none));
    if (ddp) row.to_ddp = ratios(runs, done_runs(records, scenario, *ddp));
    row.transfer_ms = over(runs, [](const Figures& f) { return 1e3 * f.per_step(f.transfer_seconds); });
    row.exposed_ms = over(runs, [](const Figures& f) { return 1e3 * f.per_step(f.exposed_seconds); });
    row.overlap = over(runs, [](const Figures& f) { return f.overlap(); });
    row.bytes_per_step = over(runs, [](const Figures& f) { return f.per_step(f.bytes_per_worker); });
    if (!runs.empty()) {
      row.local_steps = runs.back()->figures->local_steps;
      row.fragments = runs.back()->figures->fragments;
    }
    if (!items[item].steps) {  // fewer steps are another schedule: their losses compare with nothing
      row.train_loss = over(runs, [](const Figures& f) { return f.train_loss; });
      row.validation_loss = over(runs, [](const Figures& f) { return f.validation_loss; });
      for (std::size_t i = 0; !runs.empty() && i < runs[0]->figures->metrics.size(); ++i) {
        row.metrics.push_back(over(runs, [i](const Figures& f) { return f.metrics[i]; }));
      }
      row.seconds_to_target = over(
          runs, [&](const Figures& f) { return seconds_to(f.curve, table.target_loss).value_or(Figures::kUnknown); });
    }
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace co2::lab
