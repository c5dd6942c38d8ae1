#include <co2/error.h>
#include <co2/options.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/closest_name.h"
#include "options/recipe.h"

namespace co2 {
namespace {

/// The message must tell the option, the value and what is allowed.
void expect_rejected(const Options& options, const std::vector<std::string>& words) {
  try {
    resolve(options);
    ADD_FAILURE() << "accepted: " << words.front();
  } catch (const OptionError& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << " lacks " << word;
    }
    EXPECT_EQ(error.exit_code(), 2);
  }
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A run goes on with the options that it has written down: they must mean what the blanks meant.
TEST(Options, FillingInBlanksChangesNothingThatARunDependsOn) {
  for (const Strategy strategy : all_strategies()) {
    for (const int local_steps : {kAuto, 3, 12}) {
      const Options blank{.strategy = strategy, .local_steps = local_steps};
      const Recipe before = resolve(blank);
      const Recipe after = resolve(filled_in(blank));
      EXPECT_EQ(after.fixed_fragments, before.fixed_fragments) << name(strategy) << ", " << local_steps;
      EXPECT_EQ(after.fragments, before.fragments);
      EXPECT_EQ(after.momentum_from, before.momentum_from);
      EXPECT_EQ(after.adaptive_wire, before.adaptive_wire);
      EXPECT_EQ(filled_in(blank).wire, Wire::kAuto) << "a worker on its own would have another than several have";
    }
  }
}

TEST(Options, DefaultsOfEveryStrategyAreValid) {
  for (const Strategy strategy : all_strategies()) {
    for (const int local_steps : {1, 2, 12, 48}) {
      const Recipe recipe = resolve({.strategy = strategy, .local_steps = local_steps});
      EXPECT_EQ(recipe.strategy, strategy);
      EXPECT_LE(recipe.fragments, local_steps);
    }
  }
}

TEST(Options, OutOfRangeIsRejectedWithNameValueAndRange) {
  expect_rejected({.local_steps = 0}, {"local_steps", "0", "1 to 1000000"});
  expect_rejected({.local_steps = -3}, {"local_steps", "-3"});
  expect_rejected({.local_steps = 4, .fragments = 5}, {"fragments", "5", "1 to local_steps (4)"});
  expect_rejected({.fragments = 0}, {"fragments", "0"});
  expect_rejected({.local_steps = 4, .delay = 5}, {"delay", "5", "local_steps (4)"});
  expect_rejected({.delay = -1}, {"delay", "-1"});
  expect_rejected({.outer_rate = -1.0}, {"outer_rate", "-1", "above 0"});
  expect_rejected({.outer_rate = kNaN}, {"outer_rate", "nan"});
  expect_rejected({.momentum = 1.0}, {"momentum", "1", "below 1"});
  expect_rejected({.momentum = kNaN}, {"momentum", "nan"});
  expect_rejected({.clip = -1.0}, {"clip", "-1"});
  expect_rejected({.clip = 0.5}, {"clip", "0.5", "usual"});
  expect_rejected({.clip_mode = ClipMode::kValue}, {"clip_mode", "value", "clip"});
  expect_rejected({.clip = std::numeric_limits<double>::infinity()}, {"clip", "inf"});
  expect_rejected({.restart = Restart::kMix, .mix = 1.5}, {"mix", "1.5", "0 to 1"});
  expect_rejected({.accumulation_steps = 0}, {"accumulation_steps", "0"});
  expect_rejected({.bucket_bytes = 10}, {"bucket_bytes", "10", "1024"});
}

TEST(Options, WhatAStrategyCantHonourIsRejected) {
  expect_rejected({.strategy = Strategy::kDdp, .momentum = 0.5}, {"momentum", "ddp"});
  for (const Strategy strategy : {Strategy::kNone, Strategy::kDdp}) {
    expect_rejected({.strategy = strategy, .fragments = 2}, {"fragments has no meaning", std::string(name(strategy))});
    expect_rejected({.strategy = strategy, .delay = 20}, {"delay has no meaning", std::string(name(strategy))});
  }
  expect_rejected({.strategy = Strategy::kCo2, .mix = 0.5}, {"mix", "keep"});
  expect_rejected({.restart = Restart::kMix, .mix = 0}, {"mix = 0", "thrown away"});
  EXPECT_NO_THROW(resolve({.strategy = Strategy::kLocalSgd, .restart = Restart::kMix, .mix = 0}));
  expect_rejected({.strategy = Strategy::kCo2Paper, .local_steps = 12, .delay = 3}, {"delay", "3", "paper", "12"});
  expect_rejected({.strategy = Strategy::kLocalSgd, .clip_mode = ClipMode::kNorm}, {"clip_mode", "clip"});
}

TEST(Options, PapersRuleIsAppliedWhereTheNextOneIsLaunched) {
  EXPECT_EQ(resolve({.strategy = Strategy::kCo2Paper, .local_steps = 9}).delay, 9);
  EXPECT_EQ(resolve({.strategy = Strategy::kSlowMo, .local_steps = 9}).delay, 0);
  EXPECT_EQ(resolve({.strategy = Strategy::kCo2}).delay, std::nullopt);
}

TEST(Options, NamesGoBothWays) {
  for (const Strategy strategy : all_strategies()) EXPECT_EQ(strategy_from_name(name(strategy)), strategy);
  try {
    strategy_from_name("slomo");
    ADD_FAILURE();
  } catch (const OptionError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'slowmo'"), std::string::npos) << error.what();
  }
  EXPECT_THROW(restart_from_name("kept-it"), OptionError);
  EXPECT_THROW(clip_mode_from_name(""), OptionError);
}

TEST(ClosestName, FindsTypingErrorsAndNothingElse) {
  const std::vector<std::string> names{"local_steps", "momentum", "steps"};
  EXPECT_EQ(closest("local_step", names), "local_steps");
  EXPECT_EQ(closest("mometum", names), "momentum");
  EXPECT_EQ(closest("qqqqqqqq", names), "");
}

}  // namespace
}  // namespace co2
