#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/study_file.h"

namespace co2::study {

/// Every option of co2 train with these settings, checked and filled in, as its --config takes them. Throws
/// OptionError.
using Complete = std::function<nlohmann::ordered_json(const Settings&)>;

/// One training.
struct Run {
  std::string key;                ///< the same for the same configuration
  nlohmann::ordered_json config;  ///< all that decides what is learned
  std::uint64_t seed = 0;

  double samples() const;  ///< over all workers, which is what it costs too
};

/// One way to set what is to be chosen for a row, tried out, and what is run if it turns out best.
struct Trial {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  ///< by option
  std::vector<Run> tries;                                            ///< by seed of [tune]
  std::vector<Run> runs;                                             ///< by seed of the row

  std::string text() const;  ///< "learning_rate 0.002, momentum 0.3"
};

/// A line of the report.
struct Row {
  std::string label;  ///< its name, and its place in the grid: "co2 local_steps=4 workers=8"
  std::string name;
  std::vector<Choice> choices;  ///< from which trials choose
  std::vector<Trial> trials;    ///< one without tries if there is nothing to choose
  std::size_t reference = 0;    ///< the row that it is compared with; its own place if there is none

  const nlohmann::ordered_json& config() const { return trials[0].runs[0].config; }
};

struct Plan {
  std::vector<Row> rows;

  std::size_t count() const;  ///< of runs, each of which is made once: those of the best trials and all tries
  double samples() const;     ///< of all of them
};

/// All that the study asks for, checked before anything runs. Throws OptionError, also where rows contradict each
/// other: trials or samples that are not the same number for all, rows of one name, one without a counterpart in the
/// reference.
Plan plan_study(const StudyFile& file, const Complete& complete);

/// The run with these settings. The key is a checksum of what decides what is learned, without options that are about
/// machines and files.
Run run_with(const Settings& settings, const Complete& complete);

}  // namespace co2::study
