#include <co2/error.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/config_file.h"
#include "cli/job.h"
#include "cli/program.h"
#include "cli/train_flags.h"
#include "cli/train_worker.h"
#include "island/placed.h"
#include "options/recipe.h"
#include "processes/screen.h"
#include "processes/worker_group.h"
#include "train/earlier_run.h"
#include "train/run_files.h"
#include "train/task_type.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
A configuration file holds the same options, in TOML (local_steps = 12) or JSON; flags win over it. Under
torchrun, mpirun or srun each process joins the others; otherwise co2 starts the workers on this machine.

Examples:
  co2 train                                             a small model on this machine's cores, in about two minutes
  co2 train --workers 4 --local-steps 24 --steps 2000
  co2 train --strategy ddp --out runs/ddp               the synchronous baseline
  co2 train --config run.toml --learning-rate 2e-3
  co2 train --resume runs/ddp                           after a stop, a crash, or on the next day
  co2 train --workers 16 --virtual --local-steps 12     what 16 workers learn, on this machine's cores
  torchrun --nproc-per-node 2 --no-python co2 train)";

/// What can be trained, and in which sizes: from the tasks themselves.
std::string tasks_text(const std::vector<std::string>& tasks) {
  std::string text = "\nTasks, and the sizes of their models:\n";
  for (const std::string& task : tasks) {
    const train::TaskType& type = train::task_type(task);
    text += fmt::format("  {:<10} {}. A sample is {}; speed is in {} per second.\n", type.name, type.summary,
                        type.sample, type.words.unit);
    for (const train::Preset& preset : type.presets) text += fmt::format("    {:<10} {}\n", preset.name, preset.about);
    text += fmt::format("    {}\n", type.example);
  }
  return text;
}

/// `co2 train image --help` is about that task alone, `co2 train --help` about all.
std::vector<std::string> tasks_to_show(const std::vector<std::string>& words) {
  const auto known = train::task_names();
  const bool named = words.size() > 1 && words[0] == "train" && std::ranges::find(known, words[1]) != known.end();
  return named ? std::vector<std::string>{words[1]} : known;
}

struct TrainFlags {
  std::vector<Setting> settings;  // in the order of the command line
  std::optional<std::string> config_file;
  std::optional<std::string> resume;
  std::string worker_out;      // set when `co2 train` itself started this process
  bool worker_resume = false;  // the same
  bool print_config = false;
  bool json = false;
};

int start_workers(const train::TrainConfig& config, bool json, const FolderLock& folder) {
  processes::WorkerGroupOptions options;
  options.inherit = {folder.descriptor()};  // if we are killed, the folder is free when they are gone, and not before
  options.command = {std::filesystem::read_symlink("/proc/self/exe"),
                     "train",
                     "--config",
                     config.out / (config.resume ? train::kNextConfigFile : train::kConfigFile),
                     "--worker-out",
                     config.out};
  if (json) options.command.emplace_back("--json");
  if (config.resume) options.command.emplace_back("--worker-resume");
  options.workers = config.workers;
  if (!config.cluster.host.empty()) options.host = config.cluster.host;
  options.port = config.cluster.port;
  options.threads = config.threads;
  options.pin = config.pin;
  return processes::run_worker_group(options);
}

/// Those that a run was started with.
std::vector<Setting> settings_of_run(const TrainFlags& flags) {
  if (flags.config_file) throw OptionError("--resume has a configuration already, that of its run: leave out --config");
  if (given(flags.settings, "out")) throw OptionError("--resume goes on in the run's own folder: leave out --out");
  return read_run_config(*flags.resume);
}

/// Every option as it was when the run was started, or went on the last time.
nlohmann::ordered_json options_before(const std::vector<Setting>& of_run) {
  train::TrainConfig config;
  apply_all(config, of_run);
  return to_json(config);
}

/// "--wire "int8" (was "auto")" for each of the options that were given which make of a run another one.
std::string another_state(const std::vector<Setting>& of_run, const std::vector<Setting>& given_now) {
  const auto before = options_before(of_run);
  const auto task = before.at("task").get<std::string>();
  std::string text;
  for (const TrainOption& option : train_options(task)) {
    if (!option.shapes_state && !option.shapes_model) continue;
    const auto setting = std::find_if(given_now.rbegin(), given_now.rend(),
                                      [&](const Setting& each) { return each.name == option.flag; });
    if (setting == given_now.rend()) continue;
    train::TrainConfig config = train::defaults_of(task);
    apply(config, *setting);
    const nlohmann::json was = before.at(option.key());
    const nlohmann::json now = option.get(config);
    if (now == was) continue;
    text += fmt::format("{}{} {} (was {})", text.empty() ? "" : ", ", setting->shown_as, now.dump(), was.dump());
    if (config.task != task) break;  // whose options are others
  }
  return text;
}

/// What a checkpoint is of can't become another, nor can a run that is complete. Before the options that were given
/// meet those of the run, which may contradict them, although nobody has asked for these. Without a checkpoint the run
/// begins anew, with whatever options.
void refuse_another_state(const std::filesystem::path& run, const std::vector<Setting>& of_run,
                          const std::vector<Setting>& given_now) {
  const std::string text = another_state(of_run, given_now);
  if (text.empty()) return;
  const bool saved = train::has_checkpoints(run);
  if (!saved && !train::has_results(run)) return;
  throw OptionError(
      fmt::format("--resume can't go on with {}: the {} in {} are of a run with the old value. Leave it out, or "
                  "begin a new run with the old one's weights (--init-from {})",
                  text, saved ? "checkpoints" : "results", run.string(), (run / "model").string()));
}

/// A contradiction may be with something that the user did not give.
void check_together(const train::TrainConfig& config, const std::optional<std::string>& resumed) {
  try {
    check(config);
  } catch (const OptionError& error) {
    if (!resumed) throw;
    const auto source = std::filesystem::path(*resumed) / train::kConfigFile;
    throw OptionError(fmt::format("{} (what was not given is from {})", error.what(), source.string()));
  }
}

/// What has changed since the run was started, or went on the last time.
std::string changes_text(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now) {
  std::string text;
  for (const auto& [name, value] : now.items()) {
    if (name == "out" || (before.contains(name) && before[name] == value)) continue;
    text +=
        fmt::format("{} {} = {}", text.empty() ? "going on with other options than before:" : ",", name, value.dump());
    if (before.contains(name)) text += fmt::format(" (was {})", before[name].dump());
  }
  return text.empty() ? text : text + "\n";
}

int run_train(const TrainFlags& flags) {
  train::TrainConfig config;
  std::vector<Setting> settings;
  if (flags.config_file == "") throw OptionError("--config is empty: name a TOML or JSON file");
  const std::vector<Setting> of_run = flags.resume ? settings_of_run(flags) : std::vector<Setting>();
  if (flags.resume) refuse_another_state(*flags.resume, of_run, flags.settings);
  if (flags.resume) settings = of_run;
  if (flags.config_file) settings = read_config_file(*flags.config_file);
  settings.insert(settings.end(), flags.settings.begin(), flags.settings.end());
  apply_all(config, settings);
  config.resume = flags.resume || flags.worker_resume;
  if (flags.resume) config.out = *flags.resume;
  check_together(config, flags.resume);
  config = train::with_rate(config);
  train::task_type(config.task).check_data(config);
  const std::optional<Placement> placement = settle_workers(config, given(settings, "workers"));
  if (placement && config.virtual_workers) {
    throw OptionError(
        fmt::format("virtual workers are threads of one process, and {} has started {}: leave out one of "
                    "the two",
                    placement->launcher, placement->rendezvous.size));
  }
  placed(resolve(config.sync), config.workers);  // before anybody starts: throws if the islands can't be
  const auto complete = to_json(config);
  if (flags.print_config) {
    if (!placement || placement->rendezvous.rank == 0) processes::show(stdout, complete.dump(2) + "\n");
    return 0;
  }
  const std::string config_text = complete.dump(2) + "\n";
  // Before anything is written or started. Under a launcher workers find out together.
  if (flags.resume && !placement && train::is_complete(config.out, config.steps)) {
    return tell_that_it_is_complete(config, flags.json);
  }
  if (flags.resume) {
    const auto before = options_before(of_run);
    if (!placement || placement->rendezvous.rank == 0) processes::show(stderr, changes_text(before, complete));
  }
  if (!placement && config.workers > 1 && !config.virtual_workers) {
    if (config.out.empty()) config.out = train::claim_default_folder(config);
    const FolderLock folder = train::lock_run_folder(config.out);
    config.resume ? train::resume_run_folder(config.out, config_text)
                  : train::begin_run_folder(config.out, config_text);
    return start_workers(config, flags.json, folder);
  }
  if (flags.worker_out.empty()) return run_train_worker(config, flags.json, config_text);
  config.out = flags.worker_out;
  return run_train_worker(config, flags.json, "");
}

}  // namespace

void add_train(Program& program) {
  CLI::App* sub = program.app.add_subcommand("train", "Train a model on several workers");
  const std::vector<std::string> tasks = tasks_to_show(program.words);
  sub->footer(tasks_text(tasks) + kFooter);
  auto flags = std::make_shared<TrainFlags>();
  // A function, as CLI11 would leave an optional empty for an empty text.
  sub->add_option_function<std::string>(
         "--config", [flags](const std::string& path) { flags->config_file = path; },
         "TOML or JSON file with options; flags win over it")
      ->option_text("FILE");
  sub->add_option_function<std::string>(
         "--resume", [flags](const std::string& run) { flags->resume = run; },
         "Go on with the run in this folder, after its newest checkpoint; flags win over what it was started with")
      ->option_text("RUN");
  sub->add_flag("--print-config", flags->print_config, "Print all options as JSON, which --config accepts, and end");
  sub->add_flag("--json", flags->json, "At the end print the summary as JSON on stdout, instead of a table");
  sub->add_option("--worker-out", flags->worker_out)->group("");  // hidden: for the workers that we start
  sub->add_flag("--worker-resume", flags->worker_resume)->group("");
  // What another task has is known all the same: whoever uses it is told whose it is.
  const auto& shown = tasks.size() == 1 ? train_options(tasks[0]) : all_train_options();
  for (const TrainOption& option : shown) add_train_flag(*sub, option, tasks, flags->settings);
  for (const TrainOption& option : all_train_options()) {
    const bool added = std::ranges::find(shown, option.flag, &TrainOption::flag) != shown.end();
    if (!added) add_train_flag(*sub, option, {}, flags->settings);
  }
  sub->final_callback([&program, flags] {
    program.chosen = [&program, flags] {
      if (!program.after_dashes.empty()) throw OptionError("'--' has no meaning for co2 train");
      return run_train(*flags);
    };
  });
}

}  // namespace co2::cli
