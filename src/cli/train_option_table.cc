#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <type_traits>

#include "cli/train_options.h"
#include "train/gpt/gpt_config.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/task.h"
#include "train/validate.h"

namespace co2::cli {

using nlohmann::json;
using train::Highest;
using train::TrainConfig;
using Kind = TrainOption::Kind;

namespace {

// How a field's type is read from a value of the right kind, and written. A blank is written as null.
template <typename T>
void read(const json& value, T& field) {
  field = value.get<T>();
}
void read(const json& value, std::chrono::seconds& field) { field = std::chrono::seconds(value.get<std::int64_t>()); }
void read(const json& value, std::filesystem::path& field) { field = value.get<std::string>(); }
void read(const json& value, Strategy& field) { field = strategy_from_name(value.get<std::string>()); }
void read(const json& value, Restart& field) { field = restart_from_name(value.get<std::string>()); }
void read(const json& value, Wire& field) { field = wire_from_name(value.get<std::string>()); }
void read(const json& value, Compute& field) { field = compute_from_name(value.get<std::string>()); }
void read(const json& value, ClipMode& field) { field = clip_mode_from_name(value.get<std::string>()); }
template <typename T>
void read(const json& value, std::optional<T>& field) {
  read(value, field.emplace());
}

template <typename T>
json write(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(name(field));
  } else {
    return field;
  }
}
json write(const std::chrono::seconds& field) { return field.count(); }
json write(const std::filesystem::path& field) { return field.empty() ? json() : json(field.string()); }
json write(const std::string& field) { return field.empty() ? json() : json(field); }
template <typename T>
json write(const std::optional<T>& field) {
  return field ? write(*field) : json();
}

/// `access` gives the field of a TrainConfig, const or not.
template <typename Access, typename Accepts>
TrainOption make(std::string flag, std::string group, Kind kind, std::string allowed, std::string help, Access access,
                 Accepts accepts) {
  TrainOption option;
  option.flag = std::move(flag);
  option.group = std::move(group);
  option.kind = kind;
  option.allowed = std::move(allowed);
  option.help = std::move(help);
  option.set = [access, accepts](TrainConfig& config, const json& value) {
    if (value.is_null()) {
      const TrainConfig defaults;
      access(config) = access(defaults);
      return true;
    }
    if (!accepts(value)) return false;
    read(value, access(config));
    return true;
  };
  option.get = [access](const TrainConfig& config) { return write(access(config)); };
  return option;
}

template <typename Access>
TrainOption whole(std::string flag, std::string group, std::int64_t lowest, std::int64_t highest, std::string help,
                  Access access) {
  const auto accepts = [=](const json& value) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      return false;
    return value.get<std::int64_t>() >= lowest && value.get<std::int64_t>() <= highest;
  };
  return make(std::move(flag), std::move(group), Kind::kWhole, fmt::format("{} to {}", lowest, highest),
              std::move(help), access, accepts);
}

template <typename Access>
TrainOption whole_or_auto(std::string flag, std::string group, std::int64_t lowest, std::int64_t highest,
                          std::string help, Access access) {
  TrainOption option = whole(std::move(flag), std::move(group), lowest, highest, std::move(help), access);
  option.kind = Kind::kWholeOrAuto;
  option.allowed += ", or auto";
  option.set = [set = option.set, access](TrainConfig& config, const json& value) {
    if (value != "auto") return set(config, value);
    access(config) = kAuto;
    return true;
  };
  option.get = [access](const TrainConfig& config) {
    return access(config) == kAuto ? json("auto") : json(access(config));
  };
  return option;
}

enum class Ends { kBoth, kLowestOut, kHighestOut };

template <typename Access>
TrainOption number(std::string flag, std::string group, double lowest, double highest, Ends ends, std::string help,
                   Access access) {
  // NaN fails every comparison.
  const auto accepts = [=](const json& value) {
    const double x = value.get<double>();
    return (ends == Ends::kLowestOut ? x > lowest : x >= lowest) &&
           (ends == Ends::kHighestOut ? x < highest : x <= highest);
  };
  const std::string allowed = ends == Ends::kLowestOut    ? fmt::format("above {}, at most {}", lowest, highest)
                              : ends == Ends::kHighestOut ? fmt::format("at least {}, below {}", lowest, highest)
                                                          : fmt::format("{} to {}", lowest, highest);
  return make(std::move(flag), std::move(group), Kind::kNumber, allowed, std::move(help), access, accepts);
}

template <typename Access>
TrainOption one_of(std::string flag, std::string group, std::vector<std::string> names, std::string help,
                   Access access) {
  const auto accepts = [names](const json& value) {
    return std::find(names.begin(), names.end(), value.get<std::string>()) != names.end();
  };
  TrainOption option = make(std::move(flag), std::move(group), Kind::kText, fmt::format("{}", fmt::join(names, ", ")),
                            std::move(help), access, accepts);
  option.names = std::move(names);
  return option;
}

template <typename Access>
TrainOption text(std::string flag, std::string group, std::string help, Access access) {
  const auto accepts = [](const json& value) { return !value.get<std::string>().empty(); };
  return make(std::move(flag), std::move(group), Kind::kText, "not empty", std::move(help), access, accepts);
}

template <typename Access>
TrainOption yes_no(std::string flag, std::string group, std::string help, Access access) {
  return make(std::move(flag), std::move(group), Kind::kYesNo, "true or false", std::move(help), access,
              [](const json&) { return true; });
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy strategy : all_strategies()) names.emplace_back(name(strategy));
  return names;
}

#define CO2_FIELD(path) \
  [](auto& config) -> auto& { return config.path; }

void add_workload(std::vector<TrainOption>& options) {
  const std::string group = "Model and data";
  options.push_back(one_of("task", group, train::task_names(), "What to train", CO2_FIELD(task)));
  options.push_back(one_of("model", group, train::gpt_presets(),
                           "Size of the model: nano has about 1 M parameters; small to xl are GPT-2's own sizes",
                           CO2_FIELD(model)));
  options.push_back(
      text("corpus", group,
           "gutenberg, sotu, anarchism, gcide, synthetic, auto, or a path to a text file or a folder of .txt "
           "files",
           CO2_FIELD(corpus)));
  options.push_back(
      whole("context", group, 0, Highest::kContext, "Tokens per sample; 0: the model's own", CO2_FIELD(context)));
  options.push_back(
      whole("batch", group, 1, Highest::kBatch, "Samples per worker and backward pass", CO2_FIELD(batch)));
  options.push_back(number("validation-share", group, 0, Highest::kValidationShare, Ends::kLowestOut,
                           "Share of the corpus that is held out for validation", CO2_FIELD(validation_share)));
  options.push_back(whole("eval-batches", group, 1, Highest::kEvalBatches, "Batches per validation, over all workers",
                          CO2_FIELD(eval_batches)));
}

void add_optimizer(std::vector<TrainOption>& options) {
  const std::string group = "Inner optimizer";
  options.push_back(
      one_of("optimizer", group, train::optimizer_names(), "The optimizer of each worker", CO2_FIELD(optimizer)));
  options.push_back(number("learning-rate", group, 0, Highest::kLearningRate, Ends::kLowestOut, "Its highest rate",
                           CO2_FIELD(learning_rate)));
  options.push_back(
      number("weight-decay", group, 0, Highest::kWeightDecay, Ends::kBoth, "Weight decay", CO2_FIELD(weight_decay)));
  options.push_back(
      number("beta1", group, 0, 1, Ends::kHighestOut, "Adam's first beta; for sgd its momentum", CO2_FIELD(beta1)));
  options.push_back(number("beta2", group, 0, 1, Ends::kHighestOut, "Adam's second beta", CO2_FIELD(beta2)));
  options.push_back(number("gradient-clip", group, 0, Highest::kGradientClip, Ends::kBoth,
                           "Limit of the gradient's norm; 0: off", CO2_FIELD(gradient_clip)));
  options.push_back(one_of("schedule", group, train::RateSchedule::shapes(), "How the rate falls after the warm-up",
                           CO2_FIELD(schedule)));
  options.push_back(
      number("warmup", group, 0, 1, Ends::kBoth, "Share of the steps in which the rate rises", CO2_FIELD(warmup)));
  options.push_back(number("final-rate", group, 0, 1, Ends::kBoth, "Rate at the last step, as a share of the highest",
                           CO2_FIELD(final_rate)));
}

void add_run(std::vector<TrainOption>& options) {
  const std::string group = "Run";
  options.push_back(whole("steps", group, 1, Highest::kSteps, "Optimizer steps of each worker", CO2_FIELD(steps)));
  options.push_back(whole("eval-every", group, 0, Highest::kSteps, "Steps between two validations; 0: only at the end",
                          CO2_FIELD(eval_every)));
  options.push_back(
      whole("seed", group, 0, std::numeric_limits<std::int64_t>::max(), "Seed of everything random", CO2_FIELD(seed)));
  options.push_back(text("out", group,
                         "Folder for the results; files of an earlier run in it are replaced "
                         "(default: runs/<task>-<model>-<strategy>-<time>)",
                         CO2_FIELD(out)));
  options.push_back(whole("sample-bytes", group, 0, Highest::kSampleBytes,
                          "Length of the text that the model writes at the end", CO2_FIELD(sample_bytes)));
}

void add_sync(std::vector<TrainOption>& options) {
  const std::string group = "Between workers (the default is the strategy's own where none is shown)";
  options.push_back(
      one_of("strategy", group, strategy_names(), "What is exchanged, and when", CO2_FIELD(sync.strategy)));
  options.push_back(whole_or_auto("local-steps", group, 1, 1'000'000,
                                  "τ: steps between two exchanges of the same fragment; auto: as few as hide the "
                                  "exchange, adapted while training; ddp exchanges in every step",
                                  CO2_FIELD(sync.local_steps)));
  options.push_back(whole("max-local-steps", group, 1, 1'000'000, "The highest τ that auto may choose",
                          CO2_FIELD(sync.max_local_steps)));
  options.push_back(number("exchange-share", group, 0, 1, Ends::kLowestOut,
                           "Share of the time that exchanges may take from the computation; auto keeps τ high enough",
                           CO2_FIELD(sync.exchange_share)));
  options.push_back(whole("fragments", group, 1, 1'000'000,
                          "P: parts of the model that are exchanged in turn, at most local-steps",
                          CO2_FIELD(sync.fragments)));
  options.push_back(whole("delay", group, 0, 1'000'000,
                          "δ: steps from sending a fragment to using the result, at most local-steps; 0: wait for it",
                          CO2_FIELD(sync.delay)));
  options.push_back(
      number("outer-rate", group, 0, 10, Ends::kLowestOut, "α: size of the outer step", CO2_FIELD(sync.outer_rate)));
  options.push_back(number("momentum", group, 0, 1, Ends::kHighestOut,
                           "β: outer momentum; by itself co2 has none in rounds of less than 6 steps",
                           CO2_FIELD(sync.momentum)));
  options.push_back(yes_no("nesterov", group, "Look ahead along the outer momentum", CO2_FIELD(sync.nesterov)));
  options.push_back(yes_no("penalty", group, "Divide progress by its staleness gap", CO2_FIELD(sync.penalty)));
  options.push_back(number("clip", group, 0, 1e9, Ends::kBoth,
                           "φ: limit against bursts, as clip-mode says (usual: at least 1); 0: off",
                           CO2_FIELD(sync.clip)));
  options.push_back(one_of("clip-mode", group, {"usual", "value", "norm"},
                           "usual: a fragment's progress to φ times its usual size; value, norm: each element of the "
                           "outer momentum, or a fragment's norm of it, to φ in units of the learning rate",
                           CO2_FIELD(sync.clip_mode)));
  options.push_back(one_of("restart", group, {"paper", "keep", "mix"}, "How a worker goes on from the new consensus",
                           CO2_FIELD(sync.restart)));
  options.push_back(
      number("mix", group, 0, 1, Ends::kBoth, "ρ: the worker's own share in restart mix", CO2_FIELD(sync.mix)));
  options.push_back(one_of("wire", group, {"plain", "bfloat16"},
                           "What goes over the network: the parameters' own precision, or half the bytes of float32",
                           CO2_FIELD(sync.wire)));
  options.push_back(whole("accumulation-steps", group, 1, 1'000'000, "Backward passes per optimizer step",
                          CO2_FIELD(sync.accumulation_steps)));
  options.push_back(
      whole("bucket-bytes", group, 1024, 1 << 30, "Largest single collective, in bytes", CO2_FIELD(sync.bucket_bytes)));
  options.push_back(
      whole("island-size", group, 1, 1'000'000,
            "K: workers that share gradients in every step, over a fast network; the strategy is for what "
            "is between islands",
            CO2_FIELD(sync.island_size)));
  options.back().brief = "island";
  options.push_back(
      whole("zero", group, 0, 3,
            "ZeRO inside an island: 1 shards the optimizer's state, 2 the gradients too, 3 also the parameters",
            CO2_FIELD(sync.zero)));
  options.push_back(
      one_of("compute", group, {"plain", "bfloat16"},
             "What forward and backward compute in; with bfloat16 the weights themselves stay float32, in "
             "the shard",
             CO2_FIELD(sync.compute)));
}

void add_cluster(std::vector<TrainOption>& options) {
  const std::string group = "Cluster";
  options.push_back(text("host", group, "Where rank 0 can be reached (default: MASTER_ADDR)", CO2_FIELD(cluster.host)));
  options.push_back(whole("port", group, 0, 65535, "Its port; 0: MASTER_PORT, or a free one", CO2_FIELD(cluster.port)));
  options.push_back(text("interface", group,
                         "Network interface, such as eth0 (default: the one that leads to the host)",
                         CO2_FIELD(cluster.interface)));
  options.push_back(whole("rendezvous-timeout", group, 1, 86400, "Seconds to wait for all workers to appear",
                          CO2_FIELD(cluster.rendezvous_timeout)));
  options.push_back(whole("collective-timeout", group, 1, 86400, "Seconds that one collective may take",
                          CO2_FIELD(cluster.collective_timeout)));
}

void add_machine(std::vector<TrainOption>& options) {
  const std::string group = "On this machine";
  TrainOption workers =
      whole("workers", group, 1, 1024,
            "Worker processes to start here (default: one per usable core, at most 4); under torchrun, "
            "mpirun or srun, the number that they started",
            CO2_FIELD(workers));
  workers.get = [](const TrainConfig& config) { return config.workers > 0 ? json(config.workers) : json(); };
  options.push_back(std::move(workers));
  options.push_back(whole("threads", group, 0, 1024,
                          "Computing threads per worker; 0: OMP_NUM_THREADS, or the worker's share of the cores",
                          CO2_FIELD(threads)));
  options.push_back(yes_no("pin", group, "Keep workers off each other's cores", CO2_FIELD(pin)));
}

#undef CO2_FIELD

}  // namespace

const std::vector<TrainOption>& train_options() {
  static const std::vector<TrainOption> all = [] {
    std::vector<TrainOption> options;
    add_workload(options);
    add_optimizer(options);
    add_run(options);
    add_sync(options);
    add_cluster(options);
    add_machine(options);
    return options;
  }();
  return all;
}

}  // namespace co2::cli
