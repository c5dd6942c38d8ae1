// The task in whole runs, on images that it makes up.
#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "support/run_workers.h"
#include "support/temporary.h"
#include "train/image/image_options.h"
#include "train/image/png_file.h"
#include "train/task_type.h"

namespace co2::train {
namespace {

using test::run_workers;
using Json = nlohmann::json;
namespace fs = std::filesystem;

TrainConfig quick(const fs::path& out) {
  TrainConfig config = defaults_of("image");
  task_options<ImageOptions>(config).images = "synthetic";
  config.batch = 8;
  config.eval_batches = 10;
  config.steps = 12;
  config.eval_every = 6;
  config.sync.local_steps = 3;
  config.out = out;
  return config;
}

std::vector<std::string> nothing(int workers) { return std::vector<std::string>(static_cast<std::size_t>(workers)); }

TEST(ImageTask, IsTrainedWithWhatIsUsualForIt) {
  const TrainConfig config = with_rate(defaults_of("image"));
  EXPECT_EQ(config.optimizer, "sgd");
  EXPECT_EQ(config.weight_decay, 5e-4);
  EXPECT_EQ(config.learning_rate, 0.1);
  TrainConfig adam = defaults_of("image");
  adam.optimizer = "adamw";
  EXPECT_LT(with_rate(adam).learning_rate, 0.01);
  EXPECT_EQ(with_rate(defaults_of("gpt")).optimizer, "adamw");
}

TEST(ImageTask, LearnsAndTellsItsAccuracyEverywhere) {
  const test::TestFolder folder;
  TrainConfig config = quick(folder / "run");
  config.steps = 60;
  config.batch = 16;
  config.eval_batches = 0;
  config.eval_every = 30;
  const auto outcome = run_workers(2, config, folder / "screen");
  ASSERT_EQ(outcome.errors, nothing(2));
  const RunResult& result = outcome.results[0];
  ASSERT_EQ(result.validation.metrics.size(), 1u);
  EXPECT_LT(result.validation_before.metrics[0], 0.3);
  EXPECT_GT(result.validation.metrics[0], 0.6);
  EXPECT_EQ(result.validation.metrics, outcome.results[1].validation.metrics);
  EXPECT_EQ(result.units, 2 * 60 * 16);

  const Json summary = Json::parse(read_file(config.out / "summary.json"));
  EXPECT_EQ(summary["metrics"]["accuracy"].get<double>(), result.validation.metrics[0]);
  EXPECT_EQ(summary["metrics_before"]["accuracy"].get<double>(), result.validation_before.metrics[0]);
  EXPECT_EQ(summary["images"]["name"], "synthetic");
  std::vector<std::int64_t> evaluated;
  std::ifstream lines(config.out / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    EXPECT_EQ(json.contains("metrics"), !json["validation_loss"].is_null()) << line;
    if (json.contains("metrics")) evaluated.push_back(json["step"].get<std::int64_t>());
  }
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{30, 60}));
  EXPECT_NE(read_file(folder / "screen").find("step 30: validation loss "), std::string::npos);
  EXPECT_NE(read_file(folder / "screen").find(", accuracy 0."), std::string::npos);
  EXPECT_NE(format_summary(result).find("\n  accuracy           0."), std::string::npos) << format_summary(result);

  EXPECT_GT(read_png(config.out / "predictions.png").numel(), 0);
  EXPECT_NE(result.sample.find("18 degrees"), std::string::npos) << result.sample;
  EXPECT_TRUE(fs::exists(config.out / "model/model.safetensors"));
  EXPECT_EQ(Json::parse(read_file(config.out / "model/config.json"))["classes"].size(), 10u);
}

/// All validation data is looked at once, however many workers share it: also where their shares differ in size.
TEST(ImageTask, ValidatesTheSameWhateverTheNumberOfWorkers) {
  const test::TestFolder folder;
  std::vector<Evaluation> before;
  for (const int workers : {1, 2, 3}) {
    TrainConfig config = quick(folder / std::to_string(workers));
    config.batch = 7;  // 72 batches, of which the last has three images
    config.eval_batches = 0;
    config.steps = 1;
    config.eval_every = 0;
    config.checkpoint_every = "0";
    const auto outcome = run_workers(workers, config, folder / "screen");
    ASSERT_EQ(outcome.errors, nothing(workers));
    before.push_back(outcome.results[0].validation_before);
  }
  for (const Evaluation& each : before) {
    EXPECT_EQ(each.metrics, before[0].metrics);  // whole numbers, divided by 500
    EXPECT_NEAR(each.loss, before[0].loss, 1e-9);
  }
}

TEST(ImageTask, AStoppedRunGoesOnToTheSameBytes) {
  const test::TestFolder folder;
  for (const Strategy strategy : {Strategy::kDdp, Strategy::kCo2}) {
    const auto config_of = [&](const std::string& what) {
      TrainConfig config = quick(folder / fmt::format("{}-{}", name(strategy), what));
      config.sync.strategy = strategy;
      return config;
    };
    const TrainConfig undisturbed = config_of("whole");
    ASSERT_EQ(run_workers(2, undisturbed, folder / "screen").errors, nothing(2));
    TrainConfig config = config_of("stopped");
    std::vector<int> asked(2, 0);
    const auto stopped = run_workers(2, config, folder / "screen",
                                     [&](int rank) { return ++asked[static_cast<std::size_t>(rank)] >= 5; });
    ASSERT_EQ(stopped.errors, nothing(2));
    EXPECT_TRUE(stopped.results[0].interrupted);
    config.resume = true;
    const auto again = run_workers(2, config, folder / "screen");
    ASSERT_EQ(again.errors, nothing(2));
    EXPECT_EQ(again.results[0].validation_before.metrics, stopped.results[0].validation_before.metrics);
    EXPECT_EQ(read_file(config.out / "model/model.safetensors"), read_file(undisturbed.out / "model/model.safetensors"))
        << name(strategy) << ", stopped at " << stopped.results[0].steps;
  }
}

TEST(ImageTask, TrainsInEveryLayout) {
  const test::TestFolder folder;
  for (const int zero : {0, 1, 2, 3}) {
    TrainConfig config = quick(folder / std::to_string(zero));
    config.batch = 5;  // validation: an odd number of batches
    config.eval_batches = 7;
    config.steps = 4;
    config.sync.strategy = Strategy::kDdp;
    config.sync.zero = zero;
    const auto outcome = run_workers(2, config, folder / "screen");
    ASSERT_EQ(outcome.errors, nothing(2)) << zero;
    EXPECT_TRUE(fs::exists(config.out / "predictions.png"));
  }
  const auto weights = [&](int zero) { return read_file(folder / fmt::format("{}/model/model.safetensors", zero)); };
  for (const int zero : {1, 2, 3}) EXPECT_EQ(weights(zero).size(), weights(0).size());
}

TEST(ImageTask, BeginsWithTheWeightsOfAnotherRun) {
  const test::TestFolder folder;
  const TrainConfig first = quick(folder / "first");
  const auto done = run_workers(1, first, folder / "screen");
  ASSERT_EQ(done.errors, nothing(1));
  TrainConfig second = quick(folder / "second");
  second.init_from = first.out / "model";
  second.seed = 9;
  const auto outcome = run_workers(2, second, folder / "screen");
  ASSERT_EQ(outcome.errors, nothing(2));
  EXPECT_EQ(outcome.results[0].validation_before.metrics, done.results[0].validation.metrics);
}

TEST(ImageTask, ImagesThatAreMissingAreAnErrorOnAllWorkers) {
  const test::TestFolder folder;
  TrainConfig config = quick(folder / "run");
  task_options<ImageOptions>(config).images = (folder / "nowhere").string();
  for (const std::string& error : run_workers(2, config, folder / "screen").errors) {
    EXPECT_NE(error.find("nowhere"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace co2::train
