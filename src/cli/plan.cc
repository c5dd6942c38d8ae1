#include <co2/error.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include "base/human.h"
#include "cli/program.h"
#include "cli/train_flags.h"
#include "island/memory_plan.h"
#include "island/placed.h"
#include "options/recipe.h"
#include "processes/placement.h"
#include "processes/screen.h"
#include "train/every.h"
#include "train/recipe_text.h"
#include "train/summary.h"
#include "train/task_type.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
Tensors of float32 that training keeps on each worker. The process itself is larger: by what malloc keeps, LibTorch
and the program, which "resident, at most" includes; and by activations, which it does not.
co2 train reports what it has measured, by the same names. docs/zero.md has the formulas.

Examples:
  co2 plan memory --model xl --workers 8                         plain co2: every worker has the whole model
  co2 plan memory --model xl --workers 8 --island 4 --zero 2     two islands of four
  co2 plan memory --model 7b --workers 64 --island 8 --zero 3 --compute bfloat16 --json)";

constexpr const char* kPlanFooter = R"(
Examples:
  co2 plan memory --model xl --workers 8     bytes that each worker will hold
  co2 plan memory --help                     more)";

/// The options of a training run that decide what is held.
constexpr std::array<std::string_view, 18> kOptions = {
    "task",         "model", "workers",          "strategy",     "local-steps", "fragments",   "delay",
    "restart",      "wire",  "compute",          "optimizer",    "beta1",       "island-size", "accumulation-steps",
    "bucket-bytes", "zero",  "checkpoint-every", "agree-moments"};

struct PlanFlags {
  std::vector<Setting> settings;
  bool json = false;
};

int state_copies(const train::TrainConfig& config) {
  if (config.optimizer == "sgd") return config.beta1 > 0 ? 1 : 0;
  return 2;
}

std::string table(const train::TrainConfig& config, const Recipe& recipe, std::int64_t elements, const MemoryUse& use,
                  const Traffic& traffic) {
  const double copy = 4.0 * static_cast<double>(elements);
  std::string text = fmt::format("{} {}, {} parameters; {} worker{}, {}\n\n", config.task, config.model,
                                 human_count(static_cast<double>(elements)), config.workers,
                                 config.workers == 1 ? "" : "s", train::recipe_text(recipe));
  text += fmt::format("  {:<16} {:>10} {:>20}\n", "per worker", "bytes", "copies of the model");
  const auto row = [&](std::string_view name, std::int64_t bytes) {
    text += fmt::format("  {:<16} {:>10} {:>20.2f}\n", name, human_bytes(static_cast<double>(bytes)),
                        static_cast<double>(bytes) / copy);
  };
  for (const auto& [name, bytes] : kMemoryFields) {
    std::string label = name;
    std::replace(label.begin(), label.end(), '_', ' ');
    row(label, use.*bytes);
  }
  row("in all", use.total());
  text += fmt::format("  {:<16} {:>9}\n", "resident, at most", human_bytes(static_cast<double>(plan_resident(use))));
  text += fmt::format("\nEach worker sends {} per step to its island", human_bytes(traffic.island));
  if (recipe.exchange == Recipe::Exchange::kProgress) {
    text += fmt::format(", and {} per step to the others, on average over {} steps", human_bytes(traffic.across),
                        recipe.local_steps);
  }
  text += ".\n";
  if (recipe.adaptive) {
    text += fmt::format("The length of rounds is chosen while training; {} steps are assumed here (--local-steps).\n",
                        recipe.local_steps);
  }
  return text;
}

int run(const PlanFlags& flags) {
  train::TrainConfig config;
  apply_all(config, flags.settings);
  check(config);
  config = train::settled(config);
  if (config.workers == 0) config.workers = std::max(processes::default_workers(), config.sync.island_size);
  const Recipe recipe = placed(resolve(config.sync), config.workers);
  if (recipe.zero < config.sync.zero) processes::show(stderr, train::nothing_to_shard_text(config.sync.zero) + "\n");
  const ModelShape shape = train::task_type(config.task).shape(config);
  MemoryUse use = plan_memory(shape, recipe, state_copies(config), config.workers);
  if (!train::parse_every("checkpoint_every", config.checkpoint_every).never()) {
    use.checkpoint = plan_checkpoint(shape, recipe, state_copies(config), config.workers);
  }
  const Traffic traffic = plan_traffic(shape, recipe, config.workers);
  if (!flags.json) {
    processes::show(stdout, table(config, recipe, shape.elements(), use, traffic));
    return 0;
  }
  nlohmann::ordered_json json = {
      {"task", config.task},
      {"model", config.model},
      {"parameters", shape.elements()},
      {"workers", config.workers},
      {"island_size", recipe.island_size},
      {"zero", recipe.zero},
      {"strategy", name(recipe.strategy)},
      {"memory", train::memory_json(use)},
      {"bytes_per_step", {{"island", traffic.island}, {"across", traffic.across}}},
  };
  if (recipe.exchange == Recipe::Exchange::kProgress) {
    json["local_steps"] = recipe.local_steps;
    json["local_steps_assumed"] = recipe.adaptive;  // they will be chosen while training
    json["fragments"] = recipe.fragments;
    json["wire"] = name(recipe.wire);
  }
  json["memory"]["total"] = use.total();
  json["resident_bytes"] = plan_resident(use);
  processes::show(stdout, json.dump(2) + "\n");
  return 0;
}

}  // namespace

void add_plan(Program& program) {
  CLI::App* plan = program.app.add_subcommand("plan", "Say what a training run will need, without running it");
  plan->footer(kPlanFooter);
  ask_for_subcommand(program, *plan, "say what to plan: co2 plan memory");
  CLI::App* memory = plan->add_subcommand("memory", "Bytes per worker, by what they are for");
  memory->allow_extras();
  memory->footer(kFooter);
  auto flags = std::make_shared<PlanFlags>();
  memory->add_flag("--json", flags->json, "Print it as one JSON object");
  add_train_flags(*memory, kOptions, flags->settings);
  memory->final_callback([&program, flags] {
    program.chosen = [&program, flags] {
      if (!program.after_dashes.empty()) throw OptionError("'--' has no meaning for co2 plan");
      return run(*flags);
    };
  });
}

}  // namespace co2::cli
