#pragma once

#include <optional>
#include <vector>

#include "base/spread.h"
#include "lab/plan.h"
#include "lab/result.h"

namespace co2::lab {

/// One item at one rate, over its repeats.
struct Row {
  std::size_t item = 0;
  int done = 0;
  int failed = 0;
  int runs() const { return done + failed; }
  Spread units_per_second;
  Spread to_none;  ///< ratios, each to the same repeat's run of the strategy
  Spread to_ddp;
  Spread transfer_ms;  ///< per step
  Spread exposed_ms;
  Spread overlap;  ///< 0..1
  Spread bytes_per_step;
  Spread train_loss;
  Spread validation_loss;
  std::vector<Spread> metrics;  ///< one for each of TaskWords::metrics
  Spread seconds_to_target;
  std::optional<int> local_steps;  ///< of the newest repeat
  std::optional<int> fragments;
};

/// Everything at one rate.
struct Table {
  std::size_t scenario = 0;
  double target_loss = Figures::kUnknown;
  std::vector<Row> rows;  ///< of the items that have been run
};

/// `target_loss`, if not given: the highest of the lowest losses, so that everybody reaches it.
Table aggregate(const std::vector<RunRecord>& records, std::size_t scenario, const std::vector<Item>& items,
                std::optional<double> target_loss);

}  // namespace co2::lab
