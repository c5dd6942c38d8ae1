#pragma once

#include <co2/error.h>

#include <fstream>
#include <string>

#include "study/plan.h"
#include "study/study_file.h"
#include "support/temporary.h"

namespace co2::study::test {

/// Every option that these tests use, with its default. The real table is the program's (tests/study/test_study.py).
inline nlohmann::ordered_json complete(const Settings& settings) {
  nlohmann::ordered_json config = {{"task", "gpt"},     {"strategy", "co2"},       {"steps", 100},
                                   {"batch", 4},        {"accumulation_steps", 1}, {"workers", nullptr},
                                   {"seed", 1},         {"learning_rate", 0.002},  {"momentum", 0.3},
                                   {"local_steps", 12}, {"virtual", false},        {"checkpoint_every", "10m"}};
  for (const auto& [option, value] : settings) {
    if (!config.contains(option)) throw OptionError("unknown option '" + option + "'" + value.place);
    config[option] = value.value;
  }
  return config;
}

/// A study in a file of its own.
class Written {
 public:
  explicit Written(const std::string& text) { std::ofstream(path()) << text; }
  std::filesystem::path path() const { return folder_ / "study.toml"; }
  StudyFile file() const { return read_study_file(path()); }
  Plan plan() const { return plan_study(file(), complete); }
  /// What is said against it.
  std::string refusal() const {
    return co2::test::message_of<OptionError>([&] { plan(); });
  }

 private:
  co2::test::TestFolder folder_;
};

inline const std::string kHead = "name = \"small\"\nseeds = [1, 2, 3]\nreference = \"ddp\"\n[common]\nworkers = 4\n";
inline const std::string kDdp = "[[row]]\nname = \"ddp\"\nstrategy = \"ddp\"\n";

}  // namespace co2::study::test
