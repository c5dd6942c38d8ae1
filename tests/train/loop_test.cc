#include "train/loop.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "support/run_workers.h"
#include "support/temporary.h"
#include "train/gpt/gpt_options.h"
#include "train/run_files.h"
#include "train/validate.h"

namespace co2::train {
namespace {

using test::run_workers;
using Json = nlohmann::json;
namespace fs = std::filesystem;

/// A run that takes a moment: nano with a short context on the synthetic corpus.
TrainConfig quick(const fs::path& out) {
  TrainConfig config;
  task_options<GptOptions>(config).corpus = "synthetic";
  task_options<GptOptions>(config).context = 16;
  config.batch = 4;
  config.eval_batches = 4;
  config.steps = 30;
  config.eval_every = 10;
  config.learning_rate = 3e-3;
  config.sync.local_steps = 4;
  task_options<GptOptions>(config).sample_bytes = 20;
  config.out = out;
  return config;
}

std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// The names of the spans on each worker's timeline. Every worker has an entry: metadata alone does not make a span.
std::map<int, std::set<std::string>> spans_by_worker(const Json& trace) {
  std::map<int, std::set<std::string>> spans;
  for (const auto& event : trace["traceEvents"]) {
    auto& names = spans[event["pid"].get<int>()];
    const auto kind =
        event["ph"].get<std::string>();  // "X" is a span; "b" and "e" are the ends of one; "M" is metadata
    if (kind == "X" || kind == "b") names.insert(event["name"].get<std::string>());
  }
  return spans;
}

/// What a worker must have done. Others may wait too, if their network was slow.
std::set<std::string> expected_spans(Strategy strategy) {
  switch (strategy) {
    case Strategy::kNone: return {"compute"};
    case Strategy::kDdp: return {"compute", "transfer"};
    case Strategy::kLocalSgd:
    case Strategy::kSlowMo:
    case Strategy::kDiLoCo: return {"compute", "outer step", "transfer", "wait"};
    default: return {"compute", "outer step", "transfer"};
  }
}

class EveryStrategy : public testing::TestWithParam<Strategy> {};

TEST_P(EveryStrategy, TwoWorkersLearnAndWriteEverything) {
  const test::TestFolder folder;
  auto config = quick(folder / "run");
  config.sync.strategy = GetParam();
  // Seven rounds of a model that learns this fast: with the published momentum of 0.9 it runs too far ahead.
  if (GetParam() == Strategy::kEagerDiLoCo) config.sync.momentum = 0.3;
  const auto outcome = run_workers(2, config, folder / "screen");
  ASSERT_EQ(outcome.errors, (std::vector<std::string>{"", ""}));
  const auto& result = outcome.results[0];
  EXPECT_NEAR(result.validation_before.loss, std::log(256.0), 0.2);
  EXPECT_LT(result.validation.loss, result.validation_before.loss - 1);
  EXPECT_LT(result.train_loss, result.train_loss_before - 1);
  EXPECT_EQ(result.steps, 30);
  EXPECT_EQ(result.units, 2 * 30 * 4 * 16);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.validation.loss, outcome.results[1].validation.loss);
  EXPECT_EQ(result.workers.size(), 2u);
  EXPECT_GE(result.overlap(), 0);
  EXPECT_LE(result.overlap(), 1);
  EXPECT_EQ(result.bytes_per_worker() > 0, GetParam() != Strategy::kNone);

  const auto out = folder / "run";
  EXPECT_EQ(Json::parse(read_file(out / "config.json"))["steps"], 30);
  const auto summary = Json::parse(read_file(out / "summary.json"));
  EXPECT_EQ(summary["workers"], 2);
  EXPECT_EQ(summary["recipe"]["strategy"], std::string(name(GetParam())));
  EXPECT_EQ(summary["corpus"]["name"], "synthetic");
  EXPECT_NEAR(summary["validation_loss"].get<double>(), result.validation.loss, 1e-12);

  std::vector<std::int64_t> evaluated;
  std::set<std::pair<std::int64_t, bool>> seen;  // a step that is both has a line for each
  for (const auto& line : lines_of(out / "metrics.jsonl")) {
    const bool of_evaluation = !line["validation_loss"].is_null();
    EXPECT_TRUE(seen.emplace(line["step"].get<std::int64_t>(), of_evaluation).second) << line;
    if (of_evaluation) evaluated.push_back(line["step"].get<std::int64_t>());
    EXPECT_TRUE(line["tokens_per_second"].is_number());
  }
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{10, 20, 30}));
  EXPECT_TRUE(seen.contains({30, false})) << "the last step ends a period too";

  const auto shown = spans_by_worker(Json::parse(read_file(out / "trace.json")));
  EXPECT_EQ(shown.size(), 2u);
  for (const auto& [worker, names] : shown) {
    for (const auto& span : expected_spans(GetParam())) EXPECT_TRUE(names.contains(span)) << worker << ": " << span;
  }

  const auto model = checkpoint::read_safetensors(out / "model" / "model.safetensors");
  std::int64_t elements = 0;
  for (const auto& [key, tensor] : model.tensors) {
    elements += tensor.numel();
    EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << key;
  }
  EXPECT_EQ(elements, parameter_count(gpt_preset("nano", 16)));
  EXPECT_EQ(result.sample.size(), 20u);
  EXPECT_NE(format_summary(result).find("The model writes"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Loop, EveryStrategy, testing::ValuesIn(all_strategies()), [](const auto& param_info) {
  std::string text(name(param_info.param));
  std::erase(text, '-');
  return text;
});

TEST(Loop, TheSameSeedGivesTheSameRun) {
  const test::TestFolder folder;
  const auto first = run_workers(2, quick(folder / "a"), folder / "screen");
  const auto second = run_workers(2, quick(folder / "b"), folder / "screen");
  EXPECT_EQ(read_file(folder / "a/model/model.safetensors"), read_file(folder / "b/model/model.safetensors"));
  auto other = quick(folder / "c");
  other.seed = 2;
  run_workers(2, other, folder / "screen");
  EXPECT_NE(read_file(folder / "a/model/model.safetensors"), read_file(folder / "c/model/model.safetensors"));
}

TEST(Loop, AccumulationOfHalfBatchesCountsTheSameTokens) {
  const test::TestFolder folder;
  auto config = quick(folder / "run");
  config.batch = 2;
  config.sync.accumulation_steps = 2;
  for (const auto strategy : {Strategy::kDdp, Strategy::kCo2}) {
    config.sync.strategy = strategy;
    config.out = folder / std::string(name(strategy));
    const auto outcome = run_workers(2, config, folder / "screen");
    ASSERT_EQ(outcome.errors, (std::vector<std::string>{"", ""}));
    EXPECT_EQ(outcome.results[0].units, 2 * 30 * 4 * 16);
    EXPECT_LT(outcome.results[0].validation.loss, outcome.results[0].validation_before.loss - 1);
  }
}

TEST(Loop, EveryOptimizerAndScheduleTrainsAlone) {
  const test::TestFolder folder;
  for (const std::string optimizer : {"adamw", "adam", "sgd"}) {
    auto config = quick(folder / optimizer);
    config.optimizer = optimizer;
    config.schedule = optimizer == "adam" ? "linear" : "constant";
    config.learning_rate = optimizer == "sgd" ? 0.1 : 3e-3;
    config.weight_decay = optimizer == "adam" ? 0 : 0.1;
    std::FILE* screen = std::fopen("/dev/null", "w");
    const auto result = run(config, Cluster::alone(), {.screen = screen});
    std::fclose(screen);
    EXPECT_LT(result.validation.loss, result.validation_before.loss - 1) << optimizer;
  }
}

TEST(Loop, OneWorkersWishStopsAllAfterTheSameStepAndSavesWhatThereIs) {
  const test::TestFolder folder;
  auto config = quick(folder / "run");
  config.steps = 100'000;
  config.eval_every = 0;
  std::atomic<int> asked = 0;
  const auto outcome = run_workers(2, config, folder / "screen", [&](int rank) { return rank == 1 && ++asked > 15; });
  ASSERT_EQ(outcome.errors, (std::vector<std::string>{"", ""}));
  EXPECT_TRUE(outcome.results[0].interrupted);
  EXPECT_TRUE(outcome.results[1].interrupted);
  EXPECT_EQ(outcome.results[0].steps, outcome.results[1].steps);
  EXPECT_LT(outcome.results[0].steps, 100);
  EXPECT_EQ(Json::parse(read_file(folder / "run/summary.json"))["interrupted"], true);
  EXPECT_TRUE(fs::exists(folder / "run/model/model.safetensors"));
}

/// Stopped after one step, in the middle of rounds and at their ends: the same model, and the same lines of
/// metrics.jsonl but for times.
TEST(Loop, AStoppedRunGoesOnAsIfNothingHadHappened) {
  const auto without_times = [](const fs::path& path) {
    std::vector<Json> lines = lines_of(path);
    for (Json& line : lines) {
      for (const char* key : {"wall_seconds", "training_seconds", "tokens_per_second", "overlap", "exposed_seconds",
                              "transfer_seconds", "bytes"}) {  // (what was on the wire is not counted again)
        line.erase(key);
      }
    }
    return lines;
  };
  const auto clocks_go_on = [](const std::vector<Json>& lines) {
    return std::ranges::is_sorted(lines, [](const Json& a, const Json& b) {
      return a["wall_seconds"] < b["wall_seconds"] || a["training_seconds"] < b["training_seconds"];
    });
  };
  const test::TestFolder folder;
  for (const int workers : {1, 3}) {
    const auto config_of = [&](const std::string& name) {
      auto config = quick(folder / fmt::format("{}-{}", workers, name));
      config.steps = 14;
      config.eval_every = 5;
      config.sync.momentum = 0.3;
      return config;
    };
    const TrainConfig undisturbed = config_of("whole");
    run_workers(workers, undisturbed, folder / "screen");
    for (const int stop_after : {1, 2, 3, 4, 5, 6, 9, 12}) {
      TrainConfig config = config_of(std::to_string(stop_after));
      // A wish is heard two steps later.
      std::vector<int> asked(static_cast<std::size_t>(workers), 0);
      const auto stopped = run_workers(workers, config, folder / "screen",
                                       [&](int rank) { return ++asked[static_cast<std::size_t>(rank)] >= stop_after; });
      ASSERT_EQ(stopped.errors, std::vector<std::string>(static_cast<std::size_t>(workers)));
      EXPECT_TRUE(stopped.results[0].interrupted);
      EXPECT_EQ(stopped.results[0].checkpoints.made, 1);
      config.resume = true;
      const auto again = run_workers(workers, config, folder / "screen");
      ASSERT_EQ(again.errors, std::vector<std::string>(static_cast<std::size_t>(workers)));
      EXPECT_EQ(again.results[0].steps, 14);
      EXPECT_TRUE(clocks_go_on(lines_of(config.out / "metrics.jsonl")));
      EXPECT_EQ(read_file(config.out / "model/model.safetensors"),
                read_file(undisturbed.out / "model/model.safetensors"))
          << workers << " workers, stopped at " << stopped.results[0].steps;
      EXPECT_EQ(without_times(config.out / "metrics.jsonl"), without_times(undisturbed.out / "metrics.jsonl"));
    }
  }
}

/// From the checkpoint that a run makes at its end: the same model as that of one that was to take all steps at once.
TEST(Loop, AFinishedRunIsLeftAloneUnlessItIsGivenMoreSteps) {
  const test::TestFolder folder;
  const auto config_of = [&](const std::string& name, std::int64_t steps) {
    auto config = quick(folder / name);
    config.steps = steps;
    config.schedule = "constant";
    config.sync.momentum = 0.3;
    return config;
  };
  run_workers(2, config_of("whole", 14), folder / "screen");
  auto config = config_of("run", 9);
  const auto first = run_workers(2, config, folder / "screen");
  ASSERT_EQ(first.errors, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(first.results[0].checkpoints.made, 1);
  EXPECT_EQ(first.results[0].checkpoints.newest.filename(), "step-000000000009");

  config.resume = true;
  const auto model = read_file(config.out / "model/model.safetensors");
  const auto lines = read_file(config.out / "metrics.jsonl");
  const auto again = run_workers(2, config, folder / "screen");
  EXPECT_EQ(again.errors, (std::vector<std::string>{"", ""}));
  EXPECT_TRUE(again.results[0].was_complete && again.results[1].was_complete);
  config.steps = 8;
  const auto fewer = run_workers(2, config, folder / "screen");
  EXPECT_NE(fewer.errors[0].find("has taken 9 already"), std::string::npos) << fewer.errors[0];
  EXPECT_EQ(read_file(config.out / "model/model.safetensors"), model);
  EXPECT_EQ(read_file(config.out / "metrics.jsonl"), lines);
  EXPECT_FALSE(fs::exists(config.out / kNextConfigFile));

  config.steps = 14;
  const auto more = run_workers(2, config, folder / "screen");
  ASSERT_EQ(more.errors, (std::vector<std::string>{"", ""}));
  EXPECT_FALSE(more.results[0].was_complete);
  EXPECT_EQ(read_file(config.out / "model/model.safetensors"), read_file(folder / "whole/model/model.safetensors"));
}

TEST(Loop, AnUnwritableFolderIsAnErrorOnAllWorkersBeforeTraining) {
  const test::TestFolder folder;
  write_atomically(folder / "file", "");
  const auto outcome = run_workers(3, quick(folder / "file" / "run"), folder / "screen");
  EXPECT_NE(outcome.errors[0].find("--out"), std::string::npos) << outcome.errors[0];
  EXPECT_NE(outcome.errors[1].find("another worker"), std::string::npos) << outcome.errors[1];
  EXPECT_NE(outcome.errors[2].find("another worker"), std::string::npos) << outcome.errors[2];
}

/// The model above all: days of training must not depend on a timeline.
TEST(Loop, AResultThatCanNotBeWrittenCostsNoOtherOneAndAllWorkersFailTogether) {
  const test::TestFolder folder;
  const std::vector<std::string> results = {"model/model.safetensors", "summary.json", "trace.json"};
  for (const std::string& blocked : results) {
    auto config = quick(folder / fmt::format("without-{}", fs::path(blocked).stem().string()));
    config.steps = 4;
    // Another run's summary.json would be a reason not to begin, so all of them come in the way while this one trains.
    const auto block = [&](int rank) {
      if (rank == 0) fs::create_directories(config.out / blocked / "in the way");
      return false;
    };
    const auto outcome = run_workers(2, config, folder / "screen", block);
    EXPECT_NE(outcome.errors[0].find(fs::path(blocked).filename().string()), std::string::npos) << outcome.errors[0];
    EXPECT_NE(outcome.errors[1].find("another worker could not write"), std::string::npos) << outcome.errors[1];
    for (const std::string& other : results) {
      EXPECT_EQ(fs::is_regular_file(config.out / other), other != blocked) << other << " without " << blocked;
    }
  }
}

TEST(Loop, AMissingCorpusIsAnErrorOnAllWorkers) {
  const test::TestFolder folder;
  auto config = quick(folder / "run");
  task_options<GptOptions>(config).corpus = (folder / "missing.txt").string();
  const auto outcome = run_workers(2, config, folder / "screen");
  for (const auto& error : outcome.errors) EXPECT_NE(error.find("missing.txt"), std::string::npos) << error;
}

TEST(Validate, NamesTheOptionItsValueAndTheRange) {
  const auto message = [](auto change) {
    TrainConfig config;
    change(config);
    return test::message_of<OptionError>([&] { validate(config); });
  };
  EXPECT_EQ(message([](TrainConfig&) {}), "");
  EXPECT_NE(message([](auto& c) { c.task = "gtp"; }).find("did you mean 'gpt"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.model = "tinny"; }).find("did you mean 'tiny"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.optimizer = "adamv"; }).find("did you mean 'adam"), std::string::npos);
  EXPECT_EQ(message([](auto& c) { c.learning_rate = -1; }),
            "learning_rate is -1; it must be at least 0 and at most 100");
  EXPECT_NE(message([](auto& c) { c.learning_rate = std::nan(""); }), "");
  EXPECT_NE(message([](auto& c) { c.warmup = 1.5; }), "");
  EXPECT_NE(message([](auto& c) { c.steps = 0; }), "");
  EXPECT_NE(message([](auto& c) { c.batch = 0; }), "");
  EXPECT_NE(message([](auto& c) { task_options<GptOptions>(c).validation_share = 0; }), "");
  EXPECT_NE(message([](auto& c) { c.sync.local_steps = 0; }), "");
  const auto agree = [](const char* optimizer) {
    return [optimizer](auto& c) {
      c.optimizer = optimizer;
      c.sync.agree_moments = 4;
    };
  };
  EXPECT_EQ(message(agree("adam")) + message(agree("adamw")), "");
  EXPECT_NE(message(agree("sgd")).find("agree_moments = 4 has no meaning for the optimizer 'sgd'"), std::string::npos);
}

}  // namespace
}  // namespace co2::train
