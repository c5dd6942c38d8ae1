#include "doctor/doctor.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string_view>

#include "cli/job.h"
#include "cli/program.h"
#include "cli/train_flags.h"
#include "processes/worker_group.h"
#include "version.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
Run it the way that you will train: under torchrun, mpirun, srun or co2 launch each process joins the others;
otherwise co2 starts the workers on this machine. It takes some ten seconds, downloads nothing and leaves no files.
Exit code 3 if training can't work here.

Examples:
  co2 doctor                                            this machine
  co2 doctor --model small --wire bfloat16
  srun -N 4 co2 doctor --interface eth1 --json > doctor.json)";

/// The options of a training run that matter here.
constexpr std::array<std::string_view, 14> kOptions = {"task",
                                                       "model",
                                                       "batch",
                                                       "wire",
                                                       "max-local-steps",
                                                       "exchange-share",
                                                       "host",
                                                       "port",
                                                       "interface",
                                                       "rendezvous-timeout",
                                                       "collective-timeout",
                                                       "workers",
                                                       "threads",
                                                       "pin"};

struct DoctorFlags {
  std::vector<Setting> settings;
  bool json = false;
};

/// The same command once more, for the workers that we start: they see from their environment that they are to join.
std::vector<std::string> own_command(const DoctorFlags& flags) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe"), "doctor"};
  for (const Setting& setting : flags.settings) {
    const auto words = as_words(setting.name, setting.value);
    command.insert(command.end(), words.begin(), words.end());
  }
  if (flags.json) command.emplace_back("--json");
  return command;
}

int start_workers(const train::TrainConfig& config, const DoctorFlags& flags) {
  processes::WorkerGroupOptions options;
  options.command = own_command(flags);
  options.workers = config.workers;
  if (!config.cluster.host.empty()) options.host = config.cluster.host;
  options.port = config.cluster.port;
  options.threads = config.threads;
  options.pin = config.pin;
  return processes::run_worker_group(options);
}

/// The settings of the user, after the defaults that options of the task have here.
std::vector<Setting> of_doctor(const std::vector<Setting>& given) {
  train::TrainConfig config;
  for (const Setting& setting : given) {
    if (setting.name == "task") apply(config, setting);
  }
  std::vector<Setting> all;
  for (const TrainOption& option : train_options(config.task)) {
    if (!option.in_doctor.is_null()) all.push_back({option.flag, option.in_doctor, "--" + option.flag, ""});
  }
  all.insert(all.end(), given.begin(), given.end());
  return all;
}

int run(const DoctorFlags& flags) {
  train::TrainConfig config;
  apply_all(config, of_doctor(flags.settings));
  check(config);
  const auto placement = settle_workers(config, given(flags.settings, "workers"));
  if (!placement && config.workers > 1) return start_workers(config, flags);
  // No collective of ours takes long: so nothing waits longer for a worker than the rendezvous does.
  config.cluster.collective_timeout = std::min(config.cluster.collective_timeout, config.cluster.rendezvous_timeout);
  const Cluster cluster = Cluster::from_environment(config.cluster);
  share_the_machine(config, cluster);
  return doctor::run_doctor(config, cluster, kVersion, flags.json);
}

}  // namespace

void add_doctor(Program& program) {
  CLI::App* sub = program.app.add_subcommand("doctor", "Measure and check your machines, and say what to expect");
  sub->footer(kFooter);
  auto flags = std::make_shared<DoctorFlags>();
  sub->add_flag("--json", flags->json, "Print everything as one JSON object");
  add_train_flags(*sub, kOptions, flags->settings);
  sub->final_callback([&program, flags] {
    program.chosen = [&program, flags] {
      if (!program.after_dashes.empty()) throw OptionError("'--' has no meaning for co2 doctor");
      return run(*flags);
    };
  });
}

}  // namespace co2::cli
