#include "doctor/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "options/recipe.h"

namespace co2::doctor {
namespace {

Report report(int workers) {
  Report result;
  result.task = "gpt";
  result.model = "nano";
  result.parameters = 1'000'000;
  result.batch = 8;
  result.unit = "tokens";
  result.units_per_sample = 128;
  result.shape = {{"context", 128}};
  result.recipe = resolve({});
  for (int rank = 0; rank < workers; ++rank) {
    WorkerFacts facts;
    facts.rank = rank;
    facts.host = fmt::format("host{}", rank / 2);
    facts.step = {0.1, 0.11 + 0.01 * rank, 0.2, 9};
    result.workers.push_back(facts);
  }
  Measurements m;
  m.situation = {.workers = workers, .units_per_step = 1024, .step = 0.13, .transfer = 0.4, .plain_transfer = 0.4};
  if (workers > 1) {
    m.network.transfers = {{1 << 20, 0.1, 80e6}, {4'000'000, 0.4, 80e6}};
    m.recommendation = recommend(m.situation, result.recipe);
    m.recommendation_text = in_words(*m.recommendation, m.situation, result.recipe);
    m.expectations = expect(m.situation, m.recommendation->plan, Wire::kAuto);
  }
  result.measurements = m;
  result.checks = {{"threads", Level::kWarn, "too many", "take fewer"}, {"cores", Level::kOk, "fine", ""}};
  return result;
}

TEST(Report, IsShortAndNamesWhatMatters) {
  const std::string text = in_text(report(3));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 35);
  EXPECT_EQ(text.back(), '\n');
  for (const char* part : {"3 workers on 2 hosts", "rank 2, the slowest", "--local-steps", "Expected with τ =", "none",
                           "local-sgd, slowmo, diloco", "WARN  threads", "→ take fewer", "OK    cores"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(Report, WhatIsExpectedFitsATerminal) {
  Report alike = report(3);
  for (Expectation& each : alike.measurements->expectations) each.units_per_second = 1234;
  const std::string text = in_text(alike);
  std::istringstream lines(text.substr(text.find("Expected")));
  for (std::string line; std::getline(lines, line) && !line.empty();) EXPECT_LE(line.size(), 81u) << line;  // τ has two
  for (const Strategy strategy : all_strategies()) {
    EXPECT_NE(text.find(name(strategy)), std::string::npos) << name(strategy);
  }
}

TEST(Report, OneWorkerHasNothingToExchange) {
  const std::string text = in_text(report(1));
  EXPECT_EQ(text.find("all-reduce"), std::string::npos);
  EXPECT_EQ(text.find("Expected"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(in_json(report(1))).contains("expected"));
}

TEST(Report, AFailureIsReportedWithoutMeasurements) {
  Report failed = report(2);
  failed.measurements.reset();
  failed.checks = {{"ports", Level::kFail, "closed", "open them"}};
  EXPECT_NE(in_text(failed).find("FAIL  ports"), std::string::npos);
  const auto json = nlohmann::json::parse(in_json(failed));
  EXPECT_EQ(json["failed"], true);
  EXPECT_FALSE(json.contains("network"));
}

TEST(Report, JsonHasEveryStrategy) {
  const auto json = nlohmann::json::parse(in_json(report(2)));
  EXPECT_EQ(json["failed"], false);
  EXPECT_EQ(json["expected"].size(), all_strategies().size());
  EXPECT_EQ(json["expected"][0]["strategy"], "none");
  EXPECT_EQ(json["checks"][0]["level"], "WARN");
  EXPECT_EQ(json["workers"].size(), 2U);
  EXPECT_EQ(json["network"]["transfers"].size(), 2U);
}

}  // namespace
}  // namespace co2::doctor
