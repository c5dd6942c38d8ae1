#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>

#include "cli/train_options.h"
#include "train/optimizer.h"
#include "train/option_makers.h"
#include "train/schedule.h"
#include "train/task_type.h"
#include "train/validate.h"

namespace co2::cli {

namespace option = train::option;
using nlohmann::json;
using train::Highest;
using train::TaskType;
using train::TrainConfig;

namespace {

using OptionList = std::vector<TrainOption>;

/// Those of which a checkpoint is; `but` are flags that may change between two lives of a run.
OptionList shaping_state(OptionList options, const std::vector<std::string>& but) {
  for (TrainOption& each : options) each.shapes_state = std::ranges::find(but, each.flag) == but.end();
  return options;
}

OptionList in_group(const std::string& group, OptionList options) {
  for (TrainOption& each : options) each.group = group;
  return options;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy strategy : all_strategies()) names.emplace_back(name(strategy));
  return names;
}

/// What sizes the model comes in, of one task or, for the flag that they share, of several.
TrainOption model_option(const std::vector<TaskType>& types) {
  std::vector<std::string> names;
  std::vector<std::string> allowed;
  for (const TaskType& type : types) {
    const auto of_type = train::preset_names(type);
    names.insert(names.end(), of_type.begin(), of_type.end());
    const std::string list = fmt::format("{}", fmt::join(of_type, ", "));
    allowed.push_back(types.size() == 1 ? list : fmt::format("{}: {}", type.name, list));
  }
  TrainOption result = option::one_of("model", std::move(names), "Size of the model", CO2_FIELD(model));
  result.allowed = fmt::format("{}", fmt::join(allowed, "; "));
  if (types.size() == 1) {
    result.get = [first = types[0].presets[0].name](const TrainConfig& config) {
      return config.model.empty() ? first : config.model;
    };
  } else {
    result.help += "; the first of a task is its default";
  }
  return result;
}

OptionList workload_options(const std::vector<TaskType>& types) {
  OptionList options;
  options.push_back(option::one_of("task", train::task_names(), "What to train", CO2_FIELD(task)));
  options.push_back(model_option(types));
  options = shaping_state(std::move(options), {});
  options.push_back(
      option::whole("batch", 1, Highest::kBatch, "Samples per worker and backward pass", CO2_FIELD(batch)));
  options.push_back(option::whole("eval-batches", 0, Highest::kEvalBatches,
                                  "Batches per validation, over all workers; 0: all of the validation data",
                                  CO2_FIELD(eval_batches)));
  options.back().in_doctor = 1;
  return in_group("Model and data", std::move(options));
}

OptionList optimizer_options() {
  OptionList options;
  options.push_back(
      option::one_of("optimizer", train::optimizer_names(), "The optimizer of each worker", CO2_FIELD(optimizer)));
  options.back().shapes_state = true;
  options.push_back(option::number("learning-rate", 0, Highest::kLearningRate, option::Ends::kBoth,
                                   "Its highest rate, as for ddp; 0: the model's own", CO2_FIELD(learning_rate)));
  options.push_back(option::number("rate-factor", 0, Highest::kRateFactor, option::Ends::kBoth,
                                   "Times that rate on every worker; 0: as much "
                                   "as is measured to be missing where short rounds average Adam's steps, otherwise 1",
                                   CO2_FIELD(sync.rate_factor)));
  options.push_back(option::number("weight-decay", 0, Highest::kWeightDecay, option::Ends::kBoth, "Weight decay",
                                   CO2_FIELD(weight_decay)));
  options.push_back(option::number("beta1", 0, 1, option::Ends::kHighestOut, "Adam's first beta; for sgd its momentum",
                                   CO2_FIELD(beta1)));
  options.push_back(option::number("beta2", 0, 1, option::Ends::kHighestOut, "Adam's second beta", CO2_FIELD(beta2)));
  options.push_back(option::number("gradient-clip", 0, Highest::kGradientClip, option::Ends::kBoth,
                                   "Limit of the gradient's norm; 0: off", CO2_FIELD(gradient_clip)));
  options.push_back(option::one_of("schedule", train::RateSchedule::shapes(), "How the rate falls after the warm-up",
                                   CO2_FIELD(schedule)));
  options.push_back(option::number("warmup", 0, 1, option::Ends::kBoth, "Share of the steps in which the rate rises",
                                   CO2_FIELD(warmup)));
  options.push_back(option::number("final-rate", 0, 1, option::Ends::kBoth,
                                   "Rate at the last step, as a share of the highest", CO2_FIELD(final_rate)));
  return in_group("Inner optimizer", std::move(options));
}

OptionList run_options() {
  OptionList options;
  options.push_back(option::whole("steps", 1, Highest::kSteps, "Optimizer steps of each worker", CO2_FIELD(steps)));
  options.back().in_lab = 60;
  options.push_back(option::whole("eval-every", 0, Highest::kSteps, "Steps between two validations; 0: only at the end",
                                  CO2_FIELD(eval_every)));
  options.back().in_lab = 0;
  options.push_back(
      option::whole("seed", 0, std::numeric_limits<std::int64_t>::max(), "Seed of everything random", CO2_FIELD(seed)));
  options.push_back(option::text("out",
                                 "Folder for the results, without an earlier run in it "
                                 "(default: runs/<task>-<model>-<strategy>-<time>)",
                                 CO2_FIELD(out)));
  options.push_back(option::text("init-from",
                                 "Folder with weights to begin with, from co2 export, a run's model, or Hugging Face",
                                 CO2_FIELD(init_from)));
  options.push_back(option::text("checkpoint-every",
                                 "Steps (500), or time (90s, 10m, 1.5h), between two checkpoints; one is also made "
                                 "when the run is stopped, and at its end; 0: none at all",
                                 CO2_FIELD(checkpoint_every)));
  options.back().in_lab = "0";
  options.push_back(
      option::whole("keep", 1, Highest::kKeep, "Checkpoints that are kept, the newest ones", CO2_FIELD(keep)));
  return in_group("Run", std::move(options));
}

OptionList sync_options() {
  OptionList options;
  options.push_back(
      option::one_of("strategy", strategy_names(), "What is exchanged, and when", CO2_FIELD(sync.strategy)));
  options.push_back(
      option::whole_or_auto("local-steps", 1, 1'000'000,
                            "τ: steps between two exchanges of the same fragment; auto: as few as hide the "
                            "exchange, adapted while training; ddp exchanges in every step",
                            CO2_FIELD(sync.local_steps)));
  options.push_back(option::whole("max-local-steps", 1, 1'000'000, "The highest τ that auto may choose",
                                  CO2_FIELD(sync.max_local_steps)));
  options.push_back(
      option::number("exchange-share", 0, 1, option::Ends::kLowestOut,
                     "Share of the time that exchanges may take from the computation; auto keeps τ high enough",
                     CO2_FIELD(sync.exchange_share)));
  options.push_back(option::whole("fragments", 1, 1'000'000,
                                  "P: parts of the model that are exchanged in turn, at most local-steps",
                                  CO2_FIELD(sync.fragments)));
  options.push_back(
      option::whole("delay", 0, 1'000'000,
                    "δ: steps from sending a fragment to using the result, at most local-steps; 0: wait for it",
                    CO2_FIELD(sync.delay)));
  options.push_back(option::number("outer-rate", 0, 10, option::Ends::kLowestOut, "α: size of the outer step",
                                   CO2_FIELD(sync.outer_rate)));
  options.push_back(option::number("momentum", 0, 1, option::Ends::kHighestOut,
                                   "β: outer momentum; by itself co2 has none in rounds of less than 16 steps",
                                   CO2_FIELD(sync.momentum)));
  options.push_back(option::yes_no("nesterov", "Look ahead along the outer momentum", CO2_FIELD(sync.nesterov)));
  options.push_back(option::yes_no("penalty", "Divide progress by its staleness gap", CO2_FIELD(sync.penalty)));
  options.push_back(option::number("clip", 0, 1e9, option::Ends::kBoth,
                                   "φ: limit against bursts, as clip-mode says (usual: at least 1); 0: off",
                                   CO2_FIELD(sync.clip)));
  options.push_back(
      option::one_of("clip-mode", {"usual", "value", "norm"},
                     "usual: a fragment's progress to φ times its usual size; value, norm: each element of the "
                     "outer momentum, or a fragment's norm of it, to φ in units of the learning rate",
                     CO2_FIELD(sync.clip_mode)));
  options.push_back(option::one_of("restart", {"paper", "keep", "mix"}, "How a worker goes on from the new consensus",
                                   CO2_FIELD(sync.restart)));
  options.push_back(option::number("mix", 0, 1, option::Ends::kBoth, "ρ: the worker's own share in restart mix",
                                   CO2_FIELD(sync.mix)));
  options.push_back(option::one_of(
      "wire", {"auto", "plain", "bfloat16", "int8", "int4", "int2"},
      "What goes over the network: the parameters' own precision, 16, 8, 4 or 2 bits; auto: for co2 4, or 2 where that "
      "makes short rounds possible, otherwise plain",
      CO2_FIELD(sync.wire)));
  options.push_back(option::whole("agree-moments", 0, 1'000'000,
                                  "Steps between two averages of Adam's second moments over workers; 0: each has its "
                                  "own",
                                  CO2_FIELD(sync.agree_moments)));
  options.push_back(option::yes_no("checksum", "Compare what arrives with what was sent (wires of 8 bits and less)",
                                   CO2_FIELD(sync.checksum)));
  options.push_back(option::whole("accumulation-steps", 1, 1'000'000, "Backward passes per optimizer step",
                                  CO2_FIELD(sync.accumulation_steps)));
  options.push_back(option::whole("bucket-bytes", 1024, 1 << 30, "Largest single collective, in bytes",
                                  CO2_FIELD(sync.bucket_bytes)));
  options.push_back(
      option::whole("island-size", 1, 1'000'000,
                    "K: workers that share gradients in every step, over a fast network; the strategy is for what "
                    "is between islands",
                    CO2_FIELD(sync.island_size)));
  options.back().brief = "island";
  options.push_back(option::whole(
      "zero", 0, 3, "ZeRO inside an island: 1 shards the optimizer's state, 2 the gradients too, 3 also the parameters",
      CO2_FIELD(sync.zero)));
  options.push_back(
      option::one_of("compute", {"plain", "bfloat16"},
                     "What forward and backward compute in; with bfloat16 the weights themselves stay float32, in "
                     "the shard",
                     CO2_FIELD(sync.compute)));
  options = shaping_state(std::move(options), {"checksum", "island-size", "zero"});
  return in_group("Between workers (the default is the strategy's own where none is shown)", std::move(options));
}

OptionList cluster_options() {
  OptionList options;
  options.push_back(
      option::text("host", "Where rank 0 can be reached (default: MASTER_ADDR)", CO2_FIELD(cluster.host)));
  options.push_back(
      option::whole("port", 0, 65535, "Its port; 0: MASTER_PORT, or a free one", CO2_FIELD(cluster.port)));
  options.push_back(option::text("interface",
                                 "Network interface, such as eth0 (default: the one that leads to the host)",
                                 CO2_FIELD(cluster.interface)));
  options.push_back(option::whole("rendezvous-timeout", 1, 86400, "Seconds to wait for all workers to appear",
                                  CO2_FIELD(cluster.rendezvous_timeout)));
  options.push_back(option::whole("collective-timeout", 1, 86400, "Seconds that one collective may take",
                                  CO2_FIELD(cluster.collective_timeout)));
  return in_group("Cluster", std::move(options));
}

OptionList machine_options() {
  OptionList options;
  TrainOption workers =
      option::whole("workers", 1, 1024,
                    "Worker processes to start here (default: one per usable core, at most 4); under torchrun, "
                    "mpirun or srun, the number that they started",
                    CO2_FIELD(workers));
  workers.get = [](const TrainConfig& config) { return config.workers > 0 ? json(config.workers) : json(); };
  options.push_back(std::move(workers));
  options.push_back(
      option::yes_no("virtual",
                     "The workers are threads of one process, which take turns on its cores: any number "
                     "of them learns here what it would learn on a cluster, as long as times do not matter",
                     CO2_FIELD(virtual_workers)));
  options.push_back(option::whole(
      "threads", 0, 1024, "Computing threads per worker; 0: OMP_NUM_THREADS, or the worker's share of the cores",
      CO2_FIELD(threads)));
  options.push_back(option::yes_no("pin", "Keep workers off each other's cores", CO2_FIELD(pin)));
  return in_group("On this machine", std::move(options));
}

OptionList joined(std::vector<OptionList> parts) {
  OptionList all;
  for (OptionList& part : parts) std::move(part.begin(), part.end(), std::back_inserter(all));
  return all;
}

OptionList the_rest() {
  return joined({optimizer_options(), run_options(), sync_options(), cluster_options(), machine_options()});
}

OptionList own_options(const TaskType& type) {
  OptionList options = type.options();
  for (TrainOption& each : options) each.of_task = true;
  return in_group("Task " + type.name, std::move(options));
}

/// A flag that several tasks have is one flag, under a heading that names them, with what each of them says about it.
OptionList of_all_tasks() {
  OptionList all;
  std::vector<std::vector<std::string>> owners;
  for (const TaskType& type : train::task_types()) {
    for (TrainOption& added : own_options(type)) {
      const auto same = std::ranges::find(all, added.flag, &TrainOption::flag);
      if (same == all.end()) {
        owners.push_back({type.name});
        all.push_back(std::move(added));
        continue;
      }
      TORCH_CHECK(same->kind == added.kind, "the tasks do not agree on what --", added.flag, " is");
      auto& of_flag = owners[static_cast<std::size_t>(same - all.begin())];
      if (same->help != added.help) same->help += fmt::format("; {}: {}", type.name, added.help);
      if (same->default_text(of_flag.front()) != added.default_text(type.name)) {
        same->get = [](const TrainConfig&) { return json(); };
      }
      of_flag.push_back(type.name);
      same->shapes_model |= added.shapes_model;
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].group = fmt::format("Task{} {}", owners[i].size() == 1 ? "" : "s", fmt::join(owners[i], ", "));
  }
  return all;
}

}  // namespace

const OptionList& train_options(const std::string& task) {
  static const std::map<std::string, OptionList> by_task = [] {
    std::map<std::string, OptionList> result;
    for (const TaskType& type : train::task_types()) {
      result[type.name] = joined({workload_options({type}), own_options(type), the_rest()});
    }
    return result;
  }();
  return by_task.at(train::task_type(task).name);
}

const OptionList& all_train_options() {
  static const OptionList all = joined({workload_options(train::task_types()), of_all_tasks(), the_rest()});
  return all;
}

}  // namespace co2::cli
