#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>

#include "base/human.h"
#include "cli/help_formatter.h"
#include "cli/program.h"
#include "processes/worker_group.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its
environment, as torchrun would set them. If one fails, the others are ended, and its exit code is returned.
Ctrl-C is passed on to all; a second one kills them.

Examples:
  co2 launch -n 2 -- ./my_program --its-own-flags
  co2 launch -n 4 --threads 1 -- python my_training.py)";

/// CLI11 does not know about what follows "--".
class LaunchFormatter : public HelpFormatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: co2 launch -n N [OPTIONS] -- PROGRAM [ARGUMENTS...]\n";
  }
};

struct LaunchFlags {
  int workers = 0;
  int port = 0;
  int threads = 0;
  bool no_pin = false;
  bool no_prefix = false;
};

void check(const LaunchFlags& flags) {
  const auto require = [](const char* flag, int value, int lowest, int highest) {
    if (value >= lowest && value <= highest) return;
    throw OptionError(fmt::format("{} {} is not allowed: it must be {} to {}", flag, value, lowest, highest));
  };
  require("--workers", flags.workers, 1, 1024);
  require("--port", flags.port, 0, 65535);
  require("--threads", flags.threads, 0, 1024);
}

}  // namespace

void add_launch(Program& program) {
  CLI::App* sub = program.app.add_subcommand("launch", "Start several processes of any program on this machine");
  sub->formatter(std::make_shared<LaunchFormatter>());
  sub->footer(kFooter);
  auto flags = std::make_shared<LaunchFlags>();
  const CLI::Option* workers =
      sub->add_option("-n,--workers", flags->workers, "How many processes, 1 to 1024")->option_text("N");
  sub->add_option("--port", flags->port, "The port for their rendezvous, 0 to 65535; 0: a free one (default: 0)")
      ->option_text("N");
  sub->add_option("--threads", flags->threads,
                  wrap("OMP_NUM_THREADS and MKL_NUM_THREADS of each process, 0 to 1024; 0: what is set already, "
                       "otherwise its share of the cores (default: 0)",
                       80))
      ->option_text("N");
  sub->add_flag("--no-pin", flags->no_pin, "Let every process use all cores, instead of a share of its own");
  sub->add_flag("--no-prefix", flags->no_prefix,
                "Leave the processes' output as it is, without [rank] before each line");
  sub->final_callback([&program, sub, flags, workers] {
    const std::vector<std::string> words = sub->remaining();
    const bool counted = workers->count() > 0;
    if (!words.empty() && !words[0].starts_with("-")) {
      throw OptionError(fmt::format("'{}': write -- before the program: co2 launch -n {} -- {}", words[0],
                                    counted ? std::to_string(flags->workers) : "N", fmt::join(words, " ")));
    }
    program.chosen = [&program, flags, counted] {
      if (!counted) {
        throw OptionError(
            "--workers is missing, how many processes to start: co2 launch -n N -- PROGRAM [ARGUMENTS...]");
      }
      check(*flags);
      if (program.after_dashes.empty()) {
        throw OptionError("a program is missing: co2 launch -n N -- PROGRAM [ARGUMENTS...]");
      }
      processes::WorkerGroupOptions options;
      options.command = program.after_dashes;
      options.workers = flags->workers;
      options.port = flags->port;
      options.threads = flags->threads;
      options.pin = !flags->no_pin;
      options.prefix = !flags->no_prefix;
      return processes::run_worker_group(options);
    };
  });
}

}  // namespace co2::cli
