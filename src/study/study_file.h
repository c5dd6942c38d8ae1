#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/rate.h"

namespace co2::study {

/// A value from the study file, and where it stands there: " (study.toml, line 3)".
struct Value {
  nlohmann::json value;
  std::string place{};
};

/// Options of co2 train, by key.
using Settings = std::map<std::string, Value>;

/// An option with the values that it takes in turn.
struct Choice {
  std::string option;
  std::vector<nlohmann::json> values;  ///< at least one, none twice
  std::string place;
};

/// [tune]: how the values are chosen that the rows are then run with.
struct Tuning {
  std::optional<int> budget;         ///< trials that every row gets; none: as many as it has combinations
  std::vector<std::uint64_t> seeds;  ///< of the trials, none of which a row is judged by
  std::vector<Choice> choices;       ///< of every row that has no others
  Settings settings;                 ///< in which trials differ from what they are for: fewer steps, say
  std::string place;
};

/// [[row]], before its grid is expanded.
struct RowSpec {
  std::string name;
  std::string place;
  Settings settings;
  std::vector<Choice> grid;
  std::vector<Choice> choices;       ///< [row.tune]
  std::vector<std::uint64_t> seeds;  ///< its own; empty: the study's
};

/// [link]: what time is told for.
struct Link {
  std::string text;  ///< "100mbit"
  lab::Rate rate;
  std::optional<double> step_seconds;  ///< of computation; none: as the reference's runs took here
};

/// A study as its file has it. The values of options have not been looked at: that is plan_study()'s.
struct StudyFile {
  std::filesystem::path path;
  std::string name;
  std::vector<std::uint64_t> seeds;
  std::string reference;  ///< the name of a row
  std::string metric = "validation_loss";
  bool higher_is_better = false;
  std::vector<std::string> drawn;  ///< labels of the rows in the picture; empty: all
  Settings common;
  std::optional<Tuning> tune;
  std::optional<Link> link;
  std::vector<RowSpec> rows;
};

/// Throws DataError if it can't be read, OptionError with file and line for anything that it may not be.
StudyFile read_study_file(const std::filesystem::path& path);

}  // namespace co2::study
