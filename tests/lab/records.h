#pragma once

#include "lab/aggregate.h"

namespace co2::lab {

/// A run that is done, with a throughput and a loss curve that falls evenly from `first` to `last` in `seconds`.
inline RunRecord done_run(std::size_t item, int repeat, double units_per_second, double last = 2, double seconds = 10) {
  RunRecord record{.scenario = 0, .item = item, .repeat = repeat, .folder = {}, .end = {}, .links = {}, .figures = {}};
  Figures figures;
  figures.units_per_second = units_per_second;
  figures.steps = 100;
  figures.training_seconds = seconds;
  figures.transfer_seconds = 4;
  figures.exposed_seconds = 1;
  figures.bytes_per_worker = 5e6;
  figures.train_loss = last;
  figures.local_steps = 12;
  for (int i = 1; i <= 10; ++i) figures.curve.push_back({seconds * i / 10, 5 + (last - 5) * i / 10});
  record.figures = figures;
  return record;
}

inline RunRecord failed_run(std::size_t item, int repeat) {
  RunRecord record{.scenario = 0, .item = item, .repeat = repeat, .folder = {}, .end = {}, .links = {}, .figures = {}};
  record.end.kind = RunEnd::Kind::kFailed;
  record.end.why = "worker 1 ended with exit code 3";
  return record;
}

}  // namespace co2::lab
