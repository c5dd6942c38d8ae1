#include "study/plan.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/closest_name.h"
#include "study/combinations.h"
#include "study/result.h"
#include "train/sha256.h"
#include "train/task_type.h"

namespace co2::study {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

/// About the machine, the network that is not there, and files: not about what is learned.
constexpr const char* kNoMatter[] = {"out",     "host", "port", "interface",        "rendezvous_timeout",
                                     "threads", "pin",  "keep", "checkpoint_every", "collective_timeout",
                                     "checksum"};

std::string value_text(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

class Planner {
 public:
  Planner(const StudyFile& file, const Complete& complete) : file_(file), complete_(complete) {}

  Plan plan() {
    check_seeds();
    for (const RowSpec& spec : file_.rows) {
      check_choices(spec);
      for (const Combination& place : combinations(spec.grid)) add(spec, place);
    }
    check_labels();
    check_metric();
    for (std::size_t row = 0; row < plan_.rows.size(); ++row) plan_.rows[row].reference = reference_of(row);
    return std::move(plan_);
  }

 private:
  [[noreturn]] static void refuse(const RowSpec& spec, const std::string& why) {
    throw OptionError(fmt::format("row '{}'{} {}", spec.name, spec.place, why));
  }

  const std::vector<std::uint64_t>& seeds_of(const RowSpec& spec) const {
    return spec.seeds.empty() ? file_.seeds : spec.seeds;
  }
  const std::vector<Choice>& choices_of(const RowSpec& spec) const {
    return spec.choices.empty() && file_.tune ? file_.tune->choices : spec.choices;
  }

  /// The winner of the trials must not be judged by a run that made it win.
  void check_seeds() const {
    if (!file_.tune) return;
    for (const RowSpec& spec : file_.rows) {
      for (const std::uint64_t seed : seeds_of(spec)) {
        if (std::ranges::find(file_.tune->seeds, seed) == file_.tune->seeds.end()) continue;
        throw OptionError(
            fmt::format("seed {} is in [tune]{} and among those of row '{}': what was chosen with a seed can't be "
                        "judged by it. Give the trials other seeds",
                        seed, file_.tune->place, spec.name));
      }
    }
  }

  /// An option is set once: in the row or else in [common], in its grid, or by the trials. And everybody gets equally
  /// many trials.
  void check_choices(const RowSpec& spec) {
    if (!file_.tune && !spec.choices.empty()) {
      refuse(spec, "has a [row.tune], but the study has no [tune] that says with which seeds");
    }
    const std::vector<Choice>& choices = choices_of(spec);
    std::set<std::string> in_grid;
    for (const Choice& choice : spec.grid) {
      in_grid.insert(choice.option);
      if (spec.settings.contains(choice.option)) refuse(spec, fmt::format("has {} in its grid too", choice.option));
    }
    for (const Choice& choice : choices) {
      if (!spec.settings.contains(choice.option) && !in_grid.contains(choice.option)) continue;
      refuse(spec, fmt::format("sets {} itself, which trials are to choose{}: leave out one of the two", choice.option,
                               choice.place));
    }
    if (!file_.tune) return;
    const std::size_t count = combinations(choices).size();
    if (!budget_) budget_ = file_.tune->budget ? static_cast<std::size_t>(*file_.tune->budget) : count;
    if (choices.empty() || count < *budget_ || (!file_.tune->budget && count != *budget_)) {
      refuse(spec, fmt::format("has {} combinations to try, and {}: every row gets the same number of trials",
                               choices.empty() ? 0 : count,
                               file_.tune->budget ? fmt::format("the budget is {}", *budget_)
                                                  : fmt::format("row '{}' has {}", file_.rows[0].name, *budget_)));
    }
  }

  void add(const RowSpec& spec, const Combination& place) {
    Row row{.label = spec.name, .name = spec.name, .choices = choices_of(spec), .trials = {}};
    Settings settings = file_.common;
    for (const auto& [option, value] : spec.settings) settings[option] = value;
    for (const auto& [option, value] : place) {
      settings[option] = {value, spec.place};
      row.label += fmt::format(" {}={}", option, value_text(value));
    }
    auto tried = combinations(row.choices);
    if (budget_) tried = nearest_the_middle(row.choices, *budget_);
    for (const Combination& values : tried) row.trials.push_back(trial(spec, row.label, settings, values));
    plan_.rows.push_back(std::move(row));
  }

  Trial trial(const RowSpec& spec, const std::string& label, Settings settings, const Combination& values) const {
    Trial trial;
    for (const auto& [option, value] : values) {
      settings[option] = {value, spec.place};
      trial.values[option] = value;
    }
    for (const std::uint64_t seed : seeds_of(spec)) trial.runs.push_back(run(label, settings, seed));
    if (!file_.tune) return trial;
    for (const auto& [option, value] : file_.tune->settings) settings[option] = value;
    for (const std::uint64_t seed : file_.tune->seeds) trial.tries.push_back(run(label, settings, seed));
    return trial;
  }

  Run run(const std::string& label, Settings settings, std::uint64_t seed) const {
    settings["seed"] = {seed, ""};
    settings["virtual"] = {true, ""};
    settings["checkpoint_every"] = {"0", ""};
    try {
      return run_with(settings, complete_);
    } catch (const OptionError& error) {
      throw OptionError(fmt::format("row '{}': {}", label, error.what()));
    }
  }

  void check_labels() const {
    std::set<std::string> labels;
    std::vector<std::string> all;
    for (const Row& row : plan_.rows) {
      all.push_back(row.label);
      if (labels.insert(row.label).second) continue;
      throw OptionError(fmt::format("{} has two rows '{}': give each a name", file_.path.string(), row.label));
    }
    for (const std::string& label : file_.drawn) {
      if (labels.contains(label)) continue;
      throw OptionError(fmt::format("'drawn' in {} has '{}', which is no row{} There are: {}", file_.path.string(),
                                    label, did_you_mean(label, all), fmt::join(all, ", ")));
    }
  }

  /// Or hours would pass before the first report finds out.
  void check_metric() const {
    for (const Row& row : plan_.rows) {
      const auto task = row.config().at("task").get<std::string>();
      const std::vector<std::string> known = metric_names(train::task_type(task).words);
      if (std::ranges::find(known, file_.metric) != known.end()) continue;
      throw OptionError(fmt::format(
          "metric = '{}' in {} is no metric of the task {}, which row '{}' trains{} It has: {}", file_.metric,
          file_.path.string(), task, row.label, did_you_mean(file_.metric, known), fmt::join(known, ", ")));
    }
  }

  /// The row of the reference that has the same place in the reference's grid, if it has one.
  std::size_t reference_of(std::size_t index) const {
    const Row& row = plan_.rows[index];
    if (row.name == file_.reference) return index;
    const auto spec = std::ranges::find(file_.rows, file_.reference, &RowSpec::name);
    if (spec == file_.rows.end()) {
      const auto names = names_of(file_.rows, &RowSpec::name);
      throw OptionError(fmt::format("reference = '{}' in {} is no row{} There are: {}", file_.reference,
                                    file_.path.string(), did_you_mean(file_.reference, names),
                                    fmt::join(std::set<std::string>(names.begin(), names.end()), ", ")));
    }
    for (std::size_t other = 0; other < plan_.rows.size(); ++other) {
      const Row& candidate = plan_.rows[other];
      const bool counterpart = candidate.name == file_.reference && std::ranges::all_of(spec->grid, [&](const auto& c) {
                                 return candidate.config()[c.option] == row.config()[c.option];
                               });
      if (!counterpart) continue;
      const double samples = row.trials[0].runs[0].samples();
      const double others = candidate.trials[0].runs[0].samples();
      if (samples == others) return other;
      throw OptionError(
          fmt::format("row '{}' takes {} samples and '{}', which it is compared with, {}: only equal samples compare. "
                      "Change steps, "
                      "batch or accumulation_steps",
                      row.label, samples, candidate.label, others));
    }
    std::string wanted;
    for (const Choice& choice : spec->grid) {
      wanted += fmt::format(" {} = {}", choice.option, value_text(row.config()[choice.option]));
    }
    throw OptionError(fmt::format("row '{}' has nothing to be compared with: the grid of '{}' has no{}", row.label,
                                  file_.reference, wanted));
  }

  const StudyFile& file_;
  const Complete& complete_;
  std::optional<std::size_t> budget_;  // of trials
  Plan plan_;
};

}  // namespace

double Run::samples() const {
  double product = 1;
  for (const char* factor : {"steps", "batch", "accumulation_steps", "workers"}) {
    product *= config.at(factor).get<double>();
  }
  return product;
}

std::string Trial::text() const {
  std::string text;
  for (const auto& [option, value] : values.items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option, value_text(value));
  }
  return text;
}

std::size_t Plan::count() const {
  std::set<std::string> keys;
  for (const Row& row : rows) {
    for (const Trial& trial : row.trials) {
      for (const Run& run : trial.tries) keys.insert(run.key);
    }
    for (const Run& run : row.trials[0].runs) keys.insert(run.key);  // any of them: it is one that wins
  }
  return keys.size();
}

double Plan::samples() const {
  double sum = 0;
  for (const Row& row : rows) {
    for (const Trial& trial : row.trials) {
      for (const Run& run : trial.tries) sum += run.samples();
    }
    for (const Run& run : row.trials[0].runs) sum += run.samples();
  }
  return sum;
}

Run run_with(const Settings& settings, const Complete& complete) {
  Run run;
  run.config = complete(settings);
  for (const char* option : kNoMatter) run.config.erase(option);
  if (run.config.at("workers").is_null()) throw OptionError("workers is missing: set it in [common] or in the row");
  run.seed = run.config.at("seed").get<std::uint64_t>();
  constexpr std::size_t kDigits = 16;
  run.key = train::sha256(json(run.config).dump()).substr(0, kDigits);  // json: keys in the order of the alphabet
  return run;
}

Plan plan_study(const StudyFile& file, const Complete& complete) { return Planner(file, complete).plan(); }

}  // namespace co2::study
