#include "study/results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/files.h"
#include "study/outcomes.h"

namespace co2::study {
namespace {

using test::complete;
using test::outcome;
using test::ResultFolder;

Run run_of_seed(std::uint64_t seed) { return run_with({{"workers", {4}}, {"seed", {seed}}}, complete); }

TEST(Results, WhatIsAddedIsThereAgain) {
  ResultFolder folder;
  folder.add(run_of_seed(1), 2.5);
  const Results results = folder.read();
  const Result* result = results.done(run_of_seed(1).key);
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(to_json(*result), to_json(outcome(run_of_seed(1), 2.5)));
  EXPECT_EQ(results.find(run_of_seed(2).key), nullptr);
  EXPECT_TRUE(results.warnings().empty());
}

TEST(Results, ALossThatIsNotFiniteStaysOne) {
  ResultFolder folder;
  folder.add(run_of_seed(1), std::nan(""));
  EXPECT_TRUE(std::isnan(folder.read().done(run_of_seed(1).key)->metric("validation_loss")));
}

TEST(Results, AFailureIsKnownAndTheNextAttemptReplacesIt) {
  ResultFolder folder;
  folder.add_failure(run_of_seed(1));
  EXPECT_EQ(folder.read().find(run_of_seed(1).key)->failure, "exit code 1");
  EXPECT_EQ(folder.read().done(run_of_seed(1).key), nullptr);
  folder.add(run_of_seed(1), 2);
  EXPECT_NE(folder.read().done(run_of_seed(1).key), nullptr);
}

TEST(Results, ALineThatWasCutOffIsDroppedAndTheNextOneIsWhole) {
  ResultFolder folder;
  folder.add(run_of_seed(1), 2);
  folder.add(run_of_seed(2), 2);
  std::filesystem::resize_file(folder.file(), std::filesystem::file_size(folder.file()) - 20);
  const Results torn = folder.read();
  EXPECT_NE(torn.done(run_of_seed(1).key), nullptr);
  EXPECT_EQ(torn.done(run_of_seed(2).key), nullptr);
  ASSERT_EQ(torn.warnings().size(), 1U);
  folder.add(run_of_seed(3), 2);
  EXPECT_TRUE(folder.read().warnings().empty());
  EXPECT_NE(folder.read().done(run_of_seed(3).key), nullptr);
}

TEST(Results, NonsenseInTheMiddleIsAnErrorWithItsLine) {
  ResultFolder folder;
  folder.add(run_of_seed(1), 2);
  std::ofstream(folder.file(), std::ios::app) << "{\"key\": 3}\n";
  const std::string message = co2::test::message_of<DataError>([&] { (void)folder.read(); });
  EXPECT_NE(message.find("line 2 is no result of a run"), std::string::npos) << message;
}

TEST(Results, TwoCanNotAddAtOnce) {
  ResultFolder folder;
  const Results first = Results::open(folder.path(), complete);
  const std::string message = co2::test::message_of<DataError>([&] { Results::open(folder.path(), complete); });
  EXPECT_NE(message.find("another co2 study is at work"), std::string::npos) << message;
}

TEST(Results, AnOptionThatIsNewIsNoReasonToRunAgain) {
  ResultFolder folder;
  folder.add(run_of_seed(1), 2);
  const auto with_another = [](const Settings& settings) {
    Settings known = settings;
    known.erase("novelty");
    nlohmann::ordered_json config = complete(known);
    config["novelty"] = settings.contains("novelty") ? settings.at("novelty").value : "usual";
    return config;
  };
  const auto now = run_with({{"workers", {4}}, {"seed", {1}}}, with_another);
  EXPECT_NE(now.key, run_of_seed(1).key);
  EXPECT_NE(Results::read(folder.path(), with_another).done(now.key), nullptr);
}

TEST(Results, AnOptionThatIsGoneMakesAResultOld) {
  ResultFolder folder;
  folder.add(run_of_seed(1), 2);
  std::string text = read_file(folder.file());
  text.replace(text.find("\"momentum\""), 10, "\"momentun\"");
  std::ofstream(folder.file()) << text;
  const Results results = folder.read();
  EXPECT_EQ(results.find(run_of_seed(1).key), nullptr);
  ASSERT_EQ(results.warnings().size(), 1U);
  EXPECT_NE(results.warnings()[0].find("of an earlier co2"), std::string::npos);
}

TEST(Results, AMetricThatIsNotThereIsNamed) {
  const std::string message =
      co2::test::message_of<DataError>([] { (void)outcome(run_of_seed(1), 2).metric("validation_los"); });
  EXPECT_NE(message.find("did you mean 'validation_loss'?"), std::string::npos) << message;
}

}  // namespace
}  // namespace co2::study
