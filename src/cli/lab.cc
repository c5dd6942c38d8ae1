#include "lab/lab.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <utility>

#include "base/human.h"
#include "cli/help_formatter.h"
#include "cli/program.h"
#include "cli/train_flags.h"
#include "train/task_type.h"
#include "version.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
Each host is a network namespace with one worker; a bridge joins them, and a token bucket limits each link in both
directions. It works as root, and without root where the kernel allows user namespaces. Nothing outlives the command.

Rates: 100mbit, 1.5gbit, unlimited; 1gbit:100mbit is one rate per host; 1gbit/20s/100mbit changes while it runs, on
a clock that starts with the first step. Strategies: co2+bfloat16 is co2 with another wire format, ddp@40 takes only
40 steps (throughput without losses). Whatever follows -- goes to co2 train.

Examples:
  co2 lab                                               none, ddp and co2 at two rates, in a few minutes
  co2 lab --rates 100mbit,1gbit,unlimited --strategies all --model tiny
  co2 lab --rates 1gbit:100mbit --strategies none,ddp,co2    one slow host
  co2 lab --rates 1gbit/20s/100mbit --strategies co2 --repeats 1 --steps 600
  co2 lab --peers torch,torchft --strategies none,co2,co2+bfloat16
  co2 lab --rates 50mbit -- --learning-rate 1e-3 --fragments 2)";

class LabFormatter : public HelpFormatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: co2 lab [OPTIONS] [task] [-- OPTIONS OF co2 train]\n";
  }
};

struct LabFlags {
  int workers = 2;
  std::string rates = "100mbit,1gbit";
  std::string strategies = "none,ddp,co2";
  std::string peers;
  int repeats = 3;
  double target_loss = std::nan("");
  long time_limit = 3600;
  std::string out;
  std::string json;
  std::string svg;
  std::string task = train::default_task();
  std::vector<std::string> train;  ///< what the user says about the training, as flags of co2 train
};

void require(const char* flag, double value, double lowest, double highest) {
  if (value >= lowest && value <= highest) return;
  throw OptionError(fmt::format("{} {} is not allowed: it must be {} to {}", flag, value, lowest, highest));
}

std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream stream("/proc/self/cmdline");
  for (std::string word; std::getline(stream, word, '\0');) words.push_back(word);
  return words;
}

int run(const LabFlags& flags, const std::vector<std::string>& after_dashes) {
  require("--workers", flags.workers, 2, 64);
  require("--repeats", flags.repeats, 1, 1000);
  require("--time-limit", static_cast<double>(flags.time_limit), 1, 7 * 86400);
  for (const auto& [flag, path] : {std::pair{"--out", flags.out}, {"--json", flags.json}, {"--svg", flags.svg}}) {
    require_utf8(flag, path);
  }
  lab::check_train_flags(after_dashes);
  lab::LabOptions options;
  options.workers = flags.workers;
  options.scenarios = lab::parse_rates(flags.rates, flags.workers);
  options.items = lab::parse_strategies(flags.strategies);
  for (lab::Item& peer : lab::parse_peers(flags.peers)) options.items.push_back(std::move(peer));
  options.flags = {flags.task};
  for (const TrainOption& option : train_options(flags.task)) {
    if (option.in_lab.is_null()) continue;
    const auto words = as_words(option.flag, option.in_lab);
    options.flags.insert(options.flags.end(), words.begin(), words.end());
  }
  options.flags.insert(options.flags.end(), flags.train.begin(), flags.train.end());
  options.flags.insert(options.flags.end(), after_dashes.begin(), after_dashes.end());
  options.flags.insert(options.flags.end(), {"--workers", std::to_string(flags.workers)});
  options.repeats = flags.repeats;
  if (!std::isnan(flags.target_loss)) options.target_loss = flags.target_loss;
  options.time_limit = std::chrono::seconds(flags.time_limit);
  options.out = flags.out;
  options.json = flags.json;
  options.svg = flags.svg;
  options.command = own_command();
  options.version = kVersion;
  return lab::run_lab(std::move(options));
}

}  // namespace

void add_lab(Program& program) {
  CLI::App* sub = program.app.add_subcommand("lab", "Compare strategies on slow networks, on this machine alone");
  sub->formatter(std::make_shared<LabFormatter>());
  sub->footer(kFooter);
  auto flags = std::make_shared<LabFlags>();
  const auto text = [&](const char* name, std::string& value, const std::string& help, const char* shown) {
    return sub->add_option(name, value, wrap(help, 80))->option_text(shown);
  };
  const std::string what = "What is compared";
  sub->add_option("task", flags->task, fmt::format("What to train (default: {})", flags->task))->option_text("NAME");
  text("--rates", flags->rates, "Speeds of the links (default: 100mbit,1gbit)", "LIST")->group(what);
  text("--strategies", flags->strategies, "Strategies of co2 train, or all (default: none,ddp,co2)", "LIST")
      ->group(what);
  text("--peers", flags->peers,
       "Other tools, in the same runs: torch, torchft, or single ones such as torch-ddp. Set up on first use", "LIST")
      ->group(what);
  sub->add_option("--workers", flags->workers, "Hosts, with one worker each, 2 to 64 (default: 2)")
      ->option_text("N")
      ->group(what);
  sub->add_option("--repeats", flags->repeats, "How often, in turns, 1 to 1000 (default: 3)")
      ->option_text("N")
      ->group(what);
  sub->add_option("--target-loss", flags->target_loss,
                  wrap("Time is taken until the training loss, smoothed over 5 % of the steps, is this low (default: "
                       "the lowest that every run reaches)",
                       80))
      ->option_text("X")
      ->group(what);
  sub->add_option("--time-limit", flags->time_limit, "Seconds after which a run is given up (default: 3600)")
      ->option_text("N")
      ->group(what);
  const std::string training = "Training: as in co2 train";
  const auto pass = [&](const char* name, const std::string& help, const char* shown) {
    sub->add_option_function<std::string>(
           name,
           [flags, flag = std::string(name)](const std::string& value) {
             flags->train.push_back(flag);
             flags->train.push_back(value);
           },
           wrap(help, 80))
        ->option_text(shown)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(training);
  };
  pass("--local-steps", "τ: a number, or auto", "N");
  pass("--steps", "Optimizer steps of each worker (default: 60)", "N");
  pass("--model", "Size of the model", "NAME");
  pass("--batch", "Samples per worker and step", "N");
  pass("--seed", "Seed of everything random", "N");
  for (const TrainOption& option : all_train_options()) {
    if (!option.of_task) continue;
    if (option.kind == TrainOption::Kind::kYesNo) {
      const auto say = [flags, name = option.flag](std::int64_t count) {
        flags->train.push_back(as_words(name, count > 0).front());
      };
      sub->add_flag_function(fmt::format("--{0},!--no-{0}", option.flag), say, wrap(option.help, 80))->group(training);
    } else {
      pass(("--" + option.flag).c_str(), option.help, value_name(option));
    }
  }
  const std::string results = "Results";
  text("--out", flags->out, "Folder for everything (default: runs/lab-<time>)", "DIR")->group(results);
  text("--json", flags->json, "All figures (default: lab.json in the folder)", "FILE")->group(results);
  text("--svg", flags->svg, "The picture (default: lab.svg in the folder)", "FILE")->group(results);
  sub->final_callback(
      [&program, flags] { program.chosen = [&program, flags] { return run(*flags, program.after_dashes); }; });
}

}  // namespace co2::cli
