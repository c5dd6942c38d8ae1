#include "lab/lab.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/files.h"
#include "base/human.h"
#include "lab/chart.h"
#include "lab/no_namespaces.h"
#include "lab/peers.h"
#include "lab/report.h"
#include "lab/result.h"
#include "lab/status_line.h"
#include "lab/table.h"
#include "lab/tool.h"
#include "processes/signal_queue.h"
#include "train/config.h"
#include "train/folders.h"
#include "train/option.h"
#include "train/run_files.h"
#include "train/task_type.h"

namespace co2::lab {

namespace {

class Lab {
 public:
  explicit Lab(LabOptions options) : options_(std::move(options)) {}

  int run() {
    const processes::SignalQueue signals;
    try {
      prepare(signals);
    } catch (const Stopped& stopped) {
      fmt::print(stderr, "{} before the first run\n", stopped.what());
      return stopped.exit_code();
    }
    StatusLine status(kinds());
    for (std::size_t scenario = 0; scenario < options_.scenarios.size() && stopped_by_ == 0; ++scenario) {
      for (int repeat = 0; repeat < options_.repeats && stopped_by_ == 0; ++repeat) {
        for (std::size_t item = 0; item < options_.items.size() && stopped_by_ == 0; ++item) {
          run_one({.scenario = scenario,
                   .item = item,
                   .repeat = repeat,
                   .folder = folder_of(scenario, item, repeat),
                   .end = {},
                   .links = {},
                   .figures = {}},
                  signals, status);
        }
      }
      show(scenario, status);
    }
    return finish();
  }

 private:
  /// Everything that needs the machine's network or may be wrong with the options, before the first run.
  void prepare(const processes::SignalQueue& signals) {
    check_programs();
    configure(options_.items, options_.flags, &signals);
    options_.words = type().words;
    if (options_.out.empty()) options_.out = train::claim_default_folder("lab");
    train::ensure_writable(options_.out);
    if (options_.json.empty()) options_.json = options_.out / "lab.json";
    if (options_.svg.empty()) options_.svg = options_.out / "lab.svg";
    check_target("--json", options_.json);
    check_target("--svg", options_.svg);
    fetch_data(signals);
    if (has_peers()) {
      check_peers();
      peers_.emplace(signals);
      peers_->check(first_peer().config, options_.out / "peers-check");
    }
    leave_machine_network();
    Network(options_.workers).set_rates({.hosts = {Rate{1e9}}});  // proves that the kernel has all that it takes
  }

  /// Now, and not when a run of hours is over.
  static void check_target(const char* flag, const std::filesystem::path& file) {
    const auto folder = std::filesystem::absolute(file).parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error && access(folder.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
    std::error_code none;  // of a file that is not there yet
    if (!error && std::filesystem::is_directory(file, none)) error = std::make_error_code(std::errc::is_a_directory);
    if (!error) return;
    throw DataError(fmt::format("{} {} can't be written: {}; name another file", flag, file.string(), error.message()));
  }

  /// All items train the same one.
  const train::TaskType& type() const { return train::task_type(options_.items[0].config["task"].get<std::string>()); }

  /// Through the task's own options, which are part of every item's configuration.
  void fetch_data(const processes::SignalQueue& signals) {
    const auto own = type().options();
    train::TrainConfig config;
    config.task = type().name;
    config.model = options_.items[0].config["model"].get<std::string>();
    for (const auto& option : own) option.set(config, options_.items[0].config[option.key()]);
    type().fetch_data(config, {.rank = 0,
                               .size = 1,
                               .agree = [](bool mine) { return mine; },
                               .say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); },
                               .cancelled =
                                   [&] {
                                     obey(signals);
                                     return false;
                                   }});
    for (Item& item : options_.items) {
      for (const auto& option : own) item.config[option.key()] = option.get(config);
    }
  }

  bool has_peers() const {
    return std::any_of(options_.items.begin(), options_.items.end(), [](const Item& item) { return item.peer(); });
  }
  const Item& first_peer() const {
    return *std::find_if(options_.items.begin(), options_.items.end(), [](const Item& item) { return item.peer(); });
  }
  /// Peers don't choose τ themselves: they take the choice of a strategy that sends as many bits as they do, or else
  /// that of co2.
  const Item* pacemaker() const {
    for (const char* label : {"streaming-diloco", "co2+plain", "co2"}) {
      const auto found = std::find_if(options_.items.begin(), options_.items.end(),
                                      [&](const Item& item) { return item.label == label; });
      if (found != options_.items.end()) return &*found;
    }
    return nullptr;
  }
  static bool automatic(const Item& item) { return !item.config["local_steps"].is_number(); }

  void check_peers() const {
    if (!type().has_peers) {
      throw OptionError(fmt::format("--peers do not train the task {}: leave them out", type().name));
    }
    if (automatic(first_peer()) && pacemaker() == nullptr) {
      throw OptionError(
          "peers don't choose τ themselves: give --local-steps a number, or put streaming-diloco, co2+plain or co2 "
          "among "
          "the --strategies, whose choice they then take");
    }
    for (const Scenario& scenario : options_.scenarios) {
      if (scenario.phases.size() == 1) continue;
      throw OptionError(
          fmt::format("--rates '{}' changes while it runs, on a clock that begins with the first step that a "
                      "run reports, and peers report none until their end: leave out one of the two",
                      scenario.text));
    }
  }

  std::vector<std::string> kinds() const {
    std::vector<std::string> kinds;
    for (const Scenario& scenario : options_.scenarios) {
      for (int repeat = 0; repeat < options_.repeats; ++repeat) {
        for (const Item& item : options_.items) kinds.push_back(scenario.text + " " + item.label);
      }
    }
    return kinds;
  }

  std::filesystem::path folder_of(std::size_t scenario, std::size_t item, int repeat) const {
    return options_.out / options_.scenarios[scenario].folder_name() / options_.items[item].label /
           fmt::format("repeat-{}", repeat + 1);
  }

  /// What the pacemaker settled on in the first repeat at this rate; nothing if it failed.
  std::optional<int> settled_local_steps(std::size_t scenario) const {
    for (const RunRecord& record : records_) {
      if (record.scenario == scenario && &options_.items[record.item] == pacemaker() && record.figures) {
        return record.figures->local_steps;
      }
    }
    return std::nullopt;
  }

  void run_one(RunRecord record, const processes::SignalQueue& signals, StatusLine& status) {
    const Scenario& scenario = options_.scenarios[record.scenario];
    const Item& item = options_.items[record.item];
    status.begin(fmt::format("{}  {}  repeat {}/{}", scenario.text, item.label, record.repeat + 1, options_.repeats));
    try {
      make_empty(record.folder);
      const RunSpec spec = spec_of(record);
      Network network(options_.workers);
      network.set_rates(scenario.phases[0]);
      record.links = check_links(network, scenario.phases[0]);
      const auto steps = item.config["steps"].get<long>();
      record.end = execute(spec, network, scenario, signals,
                           [&] { status.update([&] { return progress(record.folder, steps); }); });
      if (record.end.kind == RunEnd::Kind::kDone) record.figures = read_figures(record.folder, options_.words);
    } catch (const std::exception& error) {
      record.end.kind = RunEnd::Kind::kFailed;
      record.end.why = error.what();
    }
    std::error_code ignored;  // weights of every run would fill a disk
    std::filesystem::remove_all(record.folder / "model", ignored);
    if (record.end.kind == RunEnd::Kind::kStopped) {
      stopped_by_ = record.end.signal;
      status.say("stopped; what has been measured so far:");
      return;
    }
    status.end(outcome(record));
    records_.push_back(std::move(record));
    save();
  }

  static void make_empty(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    if (error) throw DataError(fmt::format("can't remove the old folder {}: {}", folder.string(), error.message()));
    train::ensure_writable(folder);
  }

  RunSpec spec_of(const RunRecord& record) const {
    const Item& item = options_.items[record.item];
    nlohmann::ordered_json config = item.config;
    if (item.peer() && automatic(item)) {
      const auto local_steps = settled_local_steps(record.scenario);
      if (!local_steps) {
        throw Error(fmt::format("{} failed at this rate, so that there is no τ to take from it", pacemaker()->label),
                    1);
      }
      config["local_steps"] = *local_steps;
    }
    const auto config_file = record.folder / "config.json";
    write_atomically(config_file, config.dump(2) + "\n");
    RunSpec spec;
    spec.environment = processes::own_environment();
    if (item.peer()) {
      spec.command = peers_->command(item.peer_name, config_file, record.folder);
    } else {
      spec.command = {kOwnProgram, "train", "--config", config_file, "--worker-out", record.folder, "--json"};
    }
    spec.folder = record.folder;
    spec.threads = config["threads"].get<int>();
    spec.pin = config["pin"].get<bool>();
    spec.time_limit = options_.time_limit;
    return spec;
  }

  /// From the last whole line of the metrics, which may be a long file.
  static std::string progress(const std::filesystem::path& folder, long steps) {
    constexpr std::streamoff kTail = 4096;
    std::ifstream file(folder / "metrics.jsonl", std::ios::ate);
    if (!file || file.tellg() <= 0) return "starting";
    file.seekg(std::max<std::streamoff>(0, file.tellg() - std::streampos(kTail)));
    std::string line, last;
    while (std::getline(file, line) && !file.eof()) last = line;
    const auto json = nlohmann::json::parse(last, nullptr, false);
    return json.is_object() && json.contains("step") ? fmt::format("step {}/{}", json["step"].get<long>(), steps) : "";
  }

  std::string outcome(const RunRecord& record) const {
    std::string text;
    if (record.figures) {
      const Figures& figures = *record.figures;
      text = fmt::format("{} {}/s", thousands(figures.units_per_second), figures.unit);
      if (std::isfinite(figures.overlap())) text += fmt::format("  overlap {}", percent(figures.overlap()));
      text += fmt::format("  {} {:.3f}", options_.words.loss, figures.train_loss);
    } else {
      text = "FAILED: " + record.end.why;
    }
    return text + (record.links.empty() ? "" : "\n    link " + format_links(record.links));
  }

  void show(std::size_t scenario, StatusLine& status) const {
    const Table table = aggregate(records_, scenario, options_.items, options_.target_loss);
    if (table.rows.empty()) return;
    status.say("");
    fmt::print("{}\n", format_table(table, options_));
    std::fflush(stdout);
  }

  std::vector<Table> tables() const {
    std::vector<Table> result;
    for (std::size_t scenario = 0; scenario < options_.scenarios.size(); ++scenario) {
      result.push_back(aggregate(records_, scenario, options_.items, options_.target_loss));
    }
    return result;
  }

  /// After each run, so that whatever happens later, what was measured is there.
  void save() const { write_atomically(options_.json, report(options_, records_, tables()).dump(2) + "\n"); }

  int finish() const {
    if (!records_.empty()) {
      write_atomically(options_.svg, chart(options_, records_, tables()));
      fmt::print("written: {}, {}, and a folder for each run in {}\n", options_.json.string(), options_.svg.string(),
                 options_.out.string());
    }
    if (stopped_by_ != 0) return 128 + stopped_by_;
    const bool failed =
        std::any_of(records_.begin(), records_.end(), [](const RunRecord& record) { return !record.figures; });
    return failed ? 1 : 0;
  }

  LabOptions options_;
  std::optional<Peers> peers_;
  std::vector<RunRecord> records_;
  int stopped_by_ = 0;
};

}  // namespace

int run_lab(LabOptions options) { return Lab(std::move(options)).run(); }

}  // namespace co2::lab
