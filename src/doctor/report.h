#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "doctor/checks.h"
#include "doctor/expectation.h"
#include "doctor/facts.h"
#include "options/recipe.h"

namespace co2::doctor {

/// What was measured, once everything could be.
struct Measurements {
  Situation situation;
  NetworkFacts network;                          ///< empty with one worker
  std::optional<Recommendation> recommendation;  ///< none with one worker
  std::string recommendation_text;
  std::vector<Expectation> expectations;
  MemoryNeed memory;
};

struct Report {
  std::string task;
  std::string model;
  std::int64_t parameters = 0;
  int batch = 0;
  std::string unit;  ///< what the throughput counts
  std::int64_t units_per_sample = 1;
  std::vector<std::pair<std::string, nlohmann::json>> shape{};  ///< the task's own options that decide the step
  Recipe recipe;
  std::vector<WorkerFacts> workers;
  std::optional<Measurements> measurements;  ///< none if a check failed that everything depends on
  std::vector<Check> checks;
};

/// For people: short aligned sections. Ends with a line end.
std::string in_text(const Report& report);

/// One JSON object, for programs. Ends with a line end.
std::string in_json(const Report& report);

}  // namespace co2::doctor
