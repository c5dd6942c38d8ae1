#include "train/summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "train/run_files.h"

namespace co2::train {
namespace {

RunResult example() {
  RunResult result;
  result.task = "gpt";
  result.model = "nano";
  result.words = task_type("gpt").words;
  result.parameters = 1'040'768;
  result.data = {"gutenberg", "abc", 11'800'000};
  result.launcher = "co2";
  result.train_loss_before = 5.5;
  result.train_loss = 1.5;
  result.steps = 100;
  result.units = 204'800;
  result.training_seconds = 10;
  result.workers.resize(2);
  result.workers[0] = {.transfer_seconds = 3,
                       .exposed_seconds = 0.1,
                       .bytes_sent = 1000,
                       .peak_megabytes = 300,
                       .threads = 1,
                       .cores = "0"};
  result.workers[1] = {.transfer_seconds = 1,
                       .exposed_seconds = 0.3,
                       .bytes_sent = 3000,
                       .peak_megabytes = 200,
                       .threads = 1,
                       .cores = "1"};
  return result;
}

TEST(Summary, FiguresAreMeansOverWorkers) {
  const auto result = example();
  EXPECT_DOUBLE_EQ(result.transfer_seconds(), 2);
  EXPECT_DOUBLE_EQ(result.exposed_seconds(), 0.2);
  EXPECT_DOUBLE_EQ(result.overlap(), 0.9);
  EXPECT_DOUBLE_EQ(result.bytes_per_worker(), 2000);
  EXPECT_DOUBLE_EQ(result.units_per_second(), 20480);
  EXPECT_DOUBLE_EQ(RunResult{}.overlap(), 1);
}

TEST(Summary, JsonHasTheTableAndNullForWhatIsUnknown) {
  auto result = example();
  result.sample = "broken \xff text";
  const auto json = nlohmann::json::parse(summary_json(result));
  EXPECT_EQ(json["train_loss"], 1.5);
  EXPECT_TRUE(json["validation_loss"].is_null());
  EXPECT_EQ(json["overlap"], 0.9);
  EXPECT_EQ(json["bytes_sent_per_worker_and_step"], 20.0);
  EXPECT_EQ(json["corpus"]["sha256"], "abc");
  EXPECT_EQ(json["per_worker"].size(), 2u);
  EXPECT_EQ(json["per_worker"][1]["cores"], "1");
  EXPECT_EQ(json["interrupted"], false);
}

TEST(Summary, TableIsForPeople) {
  const auto text = format_summary(example());
  for (const std::string part : {"1.04 M parameters", "5.5000 -> 1.5000", "20.5 k tokens/s", "2.0 kB sent per worker",
                                 "90.0 %", "cores 0 | 1", "300 MB", "11.8 MB"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_NE(text.find(" - -> -"), std::string::npos) << text;  // unknown losses
}

TEST(Summary, WhereNothingWasSentNothingWasHidden) {
  auto result = example();
  for (WorkerFigures& worker : result.workers) worker.bytes_sent = 0;
  EXPECT_EQ(format_summary(result).find("overlap"), std::string::npos);
}

TEST(Summary, CountsAreEnglish) {
  auto result = example();
  result.workers[0].left_out = 1;
  result.clipping = {.exchanges = 1};
  auto text = format_summary(result);
  EXPECT_NE(text.find("took nothing from 1 exchange\n"), std::string::npos) << text;
  EXPECT_NE(text.find("from 1 exchange of a fragment"), std::string::npos) << text;
  result.clipping = {.exchanges = 3, .clipped = 1, .lost = 0.5};
  text = format_summary(result);
  EXPECT_NE(text.find("took 50 % of 1 of 3 exchanges\n"), std::string::npos) << text;
}

TEST(Summary, JsonHasTheWholeRecipe) {
  auto result = example();
  result.recipe.agree_moments = 8;
  result.recipe.checksum = true;
  result.recipe.rate_factor = 1.5;
  const auto recipe = nlohmann::json::parse(summary_json(result))["recipe"];
  EXPECT_EQ(recipe["agree_moments"], 8);
  EXPECT_EQ(recipe["checksum"], true);
  EXPECT_EQ(recipe["rate_factor"], 1.5);
}

TEST(Summary, WorkerFiguresTravelAsText) {
  const auto figures = example().workers[1];
  EXPECT_EQ(to_text(figures_from_text(to_text(figures))), to_text(figures));
}

TEST(RunFiles, TimelinesAreMerged) {
  const auto merged = nlohmann::json::parse(
      merged_trace({R"({"traceEvents":[{"pid":0}]})", R"({"traceEvents":[{"pid":1},{"pid":1}]})"}));
  EXPECT_EQ(merged["traceEvents"].size(), 3u);
  EXPECT_EQ(merged["traceEvents"][2]["pid"], 1);
}

}  // namespace
}  // namespace co2::train
