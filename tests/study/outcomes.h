#pragma once

#include <map>
#include <string>

#include "study/results.h"
#include "study/studies.h"

namespace co2::study::test {

/// What a run might have led to.
inline Result outcome(const Run& run, double loss) {
  Result result;
  result.key = run.key;
  result.config = run.config;
  result.metrics = {{"validation_loss", loss}, {"train_loss", loss - 0.1}};
  result.training_seconds = 40;
  result.wall_seconds = 50;
  result.bytes_per_step = 1.25e6;
  result.recipe = {{"strategy", run.config.at("strategy")}, {"delay", nullptr}};
  result.data = {{"name", "synthetic"}};
  for (int i = 1; i <= 10; ++i) result.curve.push_back({10.0 * i, 5 + (loss - 5) * i / 10});
  result.version = "0.1.0";
  result.host = "here";
  result.processor = "a processor";
  result.finished = "2025-01-31T12:00:00Z";
  return result;
}

/// A folder with results.
class ResultFolder {
 public:
  std::filesystem::path path() const { return folder_.path(); }
  std::filesystem::path file() const { return folder_ / Results::kFile; }
  void add(const Run& run, double loss) { Results::open(path(), complete).append(outcome(run, loss)); }
  void add_failure(const Run& run) {
    Result result = outcome(run, 0);
    result.failure = "exit code 1";
    Results::open(path(), complete).append(result);
  }
  Results read() const { return Results::read(path(), complete); }

 private:
  co2::test::TestFolder folder_;
};

}  // namespace co2::study::test
