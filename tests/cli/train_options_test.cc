#include "cli/train_options.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "options/recipe.h"

namespace co2::cli {
namespace {

using nlohmann::json;
using train::TrainConfig;

void set(TrainConfig& config, const std::string& key, const json& value) { apply(config, {key, value, key, ""}); }

std::string refusal(const std::string& key, const json& value) {
  TrainConfig config;
  try {
    set(config, key, value);
  } catch (const OptionError& error) {
    return error.what();
  }
  return "accepted";
}

const TrainOption& option(const std::string& flag) {
  for (const TrainOption& candidate : train_options("gpt")) {
    if (candidate.flag == flag) return candidate;
  }
  throw std::logic_error("no option " + flag);
}

TEST(TrainOptions, NamesAreUniqueAndExplained) {
  std::set<std::string> flags;
  for (const TrainOption& candidate : train_options("gpt")) {
    EXPECT_TRUE(flags.insert(candidate.flag).second) << candidate.flag;
    EXPECT_FALSE(candidate.help.empty()) << candidate.flag;
    EXPECT_FALSE(candidate.allowed.empty()) << candidate.flag;
  }
}

TEST(TrainOptions, UnderscoresAndDashesAreTheSame) {
  TrainConfig config;
  set(config, "local_steps", 7);
  EXPECT_EQ(config.sync.local_steps, 7);
  set(config, "local-steps", 9);
  EXPECT_EQ(config.sync.local_steps, 9);
}

TEST(TrainOptions, UnknownNameGivesTheClosest) {
  EXPECT_EQ(refusal("local_step", 3),
            "unknown option 'local_step'; did you mean 'local_steps'? 'co2 train --help' lists all");
  EXPECT_NE(refusal("leaning-rate", 1.0).find("'learning-rate'"), std::string::npos);
  EXPECT_EQ(refusal("qqqqqqqqqqqqqqqq", 3).find("did you mean"), std::string::npos);
}

TEST(TrainOptions, WrongKindIsNamed) {
  EXPECT_EQ(refusal("local_steps", "12"), "local_steps expects a whole number or 'auto', not '12'");
  EXPECT_EQ(refusal("local_steps", 12.5), "local_steps expects a whole number or 'auto', not 12.5");
  EXPECT_EQ(refusal("steps", "auto"), "steps expects a whole number, not 'auto'");
  EXPECT_EQ(refusal("penalty", 1), "penalty expects true or false, not 1");
  EXPECT_EQ(refusal("model", true), "model expects a text, not true");
  EXPECT_EQ(refusal("learning_rate", "high"), "learning_rate expects a number, not 'high'");
}

TEST(TrainOptions, RangesAreEnforcedAtBothEnds) {
  for (const auto& [key, bad] :
       std::vector<std::pair<std::string, json>>{{"local_steps", 0},
                                                 {"local_steps", kAuto},
                                                 {"local_steps", 1'000'001},
                                                 {"max_local_steps", 0},
                                                 {"exchange_share", 0.0},
                                                 {"local_steps", std::numeric_limits<std::uint64_t>::max()},
                                                 {"workers", 0},
                                                 {"workers", -1},
                                                 {"learning_rate", -0.1},
                                                 {"outer_rate", -1},
                                                 {"momentum", 1.0},
                                                 {"beta2", 1},
                                                 {"port", 65536},
                                                 {"steps", 0},
                                                 {"out", ""}}) {
    EXPECT_NE(refusal(key, bad).find(key + " = "), std::string::npos) << key << " " << bad << ": " << refusal(key, bad);
    EXPECT_NE(refusal(key, bad).find("must be"), std::string::npos) << key << " " << bad;
  }
  EXPECT_EQ(refusal("local_steps", 0), "local_steps = 0 is not allowed: it must be 1 to 1000000, or auto");
}

TEST(TrainOptions, NotANumberAndInfinityAreRefusedEverywhere) {
  for (const TrainOption& candidate : train_options("gpt")) {
    if (candidate.kind != TrainOption::Kind::kNumber) continue;
    for (const double bad :
         {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      EXPECT_NE(refusal(candidate.key(), bad), "accepted") << candidate.flag << " " << bad;
    }
  }
}

TEST(TrainOptions, NamesAreOneOfAList) {
  EXPECT_EQ(refusal("strategy", "co3"),
            "strategy 'co3' is not known; did you mean 'co2'? Allowed: none, ddp, local-sgd, slowmo, diloco, "
            "streaming-diloco, eager-diloco, overlap-local-sgd, co2-paper, co2");
  EXPECT_NE(refusal("model", "nanno").find("did you mean 'nano'?"), std::string::npos);
  EXPECT_NE(refusal("optimizer", "adamx").find("Allowed: "), std::string::npos);
}

TEST(TrainOptions, TextOfFlagsIsReadWhole) {
  EXPECT_EQ(parse_text(option("steps"), "100"), json(100));
  EXPECT_EQ(parse_text(option("learning-rate"), "1e-3"), json(1e-3));
  EXPECT_EQ(parse_text(option("steps"), "+5"), json(5));
  for (const char* bad : {"", "12x", "1.5", "0x10", " 3", "abc"}) {
    EXPECT_THROW(parse_text(option("steps"), bad), OptionError) << bad;
  }
  EXPECT_THROW(parse_text(option("learning-rate"), "1e-3,"), OptionError);
  EXPECT_TRUE(std::isnan(parse_text(option("learning-rate"), "nan").get<double>()));
}

TEST(TrainOptions, NullGivesTheDefaultBack) {
  TrainConfig config;
  set(config, "momentum", 0.5);
  set(config, "batch", 3);
  set(config, "momentum", nullptr);
  set(config, "batch", nullptr);
  EXPECT_FALSE(config.sync.momentum.has_value());
  EXPECT_EQ(config.batch, TrainConfig{}.batch);
}

void expect_same_recipe(const Recipe& a, const Recipe& b) {
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.exchange, b.exchange);
  EXPECT_EQ(a.local_steps, b.local_steps);
  EXPECT_EQ(a.fragments, b.fragments);
  EXPECT_EQ(a.delay, b.delay);
  EXPECT_EQ(a.outer_rate, b.outer_rate);
  EXPECT_EQ(a.momentum, b.momentum);
  EXPECT_EQ(a.nesterov, b.nesterov);
  EXPECT_EQ(a.rate_units, b.rate_units);
  EXPECT_EQ(a.penalty, b.penalty);
  EXPECT_EQ(a.clip, b.clip);
  EXPECT_EQ(a.clip_mode, b.clip_mode);
  EXPECT_EQ(a.restart, b.restart);
  EXPECT_EQ(a.mix, b.mix);
  EXPECT_EQ(a.agree_moments, b.agree_moments);
  EXPECT_EQ(a.accumulation_steps, b.accumulation_steps);
  EXPECT_EQ(a.bucket_bytes, b.bucket_bytes);
}

class RoundTrip : public testing::TestWithParam<std::pair<Strategy, int>> {};

TEST_P(RoundTrip, PrintedConfigurationGivesTheSameRunAgain) {
  TrainConfig config;
  config.sync.strategy = GetParam().first;
  config.sync.local_steps = GetParam().second;
  config.learning_rate = 0.1 + 0.2;  // needs all 17 digits
  config.out = "some folder/ä";
  config.cluster.interface = "lo";
  config.seed = std::numeric_limits<std::int64_t>::max();
  const auto printed = to_json(config);
  ASSERT_EQ(printed.size(), train_options("gpt").size());

  TrainConfig again;
  const json parsed = json::parse(printed.dump());
  for (const auto& [key, value] : parsed.items()) set(again, key, value);
  check(again);
  EXPECT_EQ(to_json(again), printed);
  EXPECT_EQ(again.learning_rate, config.learning_rate);
  EXPECT_EQ(again.seed, config.seed);
  expect_same_recipe(resolve(again.sync), resolve(config.sync));
}

std::vector<std::pair<Strategy, int>> round_trips() {
  std::vector<std::pair<Strategy, int>> result;
  for (const Strategy strategy : all_strategies()) {
    for (const int local_steps : {7, kAuto}) result.emplace_back(strategy, local_steps);
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(AllStrategies, RoundTrip, testing::ValuesIn(round_trips()));

TEST(TrainOptions, EveryOptionSurvivesTheRoundTripWhenItIsNotTheDefault) {
  const std::map<std::string, json> values{{"task", "gpt"},
                                           {"model", "tiny"},
                                           {"corpus", "synthetic"},
                                           {"context", 33},
                                           {"batch", 3},
                                           {"validation_share", 0.125},
                                           {"eval_batches", 5},
                                           {"optimizer", "sgd"},
                                           {"learning_rate", 0.25},
                                           {"rate_factor", 1.5},
                                           {"weight_decay", 0.5},
                                           {"beta1", 0.75},
                                           {"beta2", 0.5},
                                           {"gradient_clip", 2.5},
                                           {"schedule", "linear"},
                                           {"warmup", 0.25},
                                           {"final_rate", 0.5},
                                           {"steps", 77},
                                           {"eval_every", 11},
                                           {"seed", 99},
                                           {"out", "elsewhere"},
                                           {"init_from", "weights"},
                                           {"checkpoint_every", "90s"},
                                           {"keep", 5},
                                           {"sample_bytes", 12},
                                           {"strategy", "streaming-diloco"},
                                           {"local_steps", 24},
                                           {"max_local_steps", 99},
                                           {"exchange_share", 0.05},
                                           {"fragments", 5},
                                           {"delay", 3},
                                           {"outer_rate", 0.5},
                                           {"momentum", 0.25},
                                           {"nesterov", false},
                                           {"penalty", true},
                                           {"clip", 4.0},
                                           {"clip_mode", "norm"},
                                           {"restart", "mix"},
                                           {"mix", 0.25},
                                           {"wire", "int4"},
                                           {"agree_moments", 24},
                                           {"checksum", true},
                                           {"accumulation_steps", 2},
                                           {"bucket_bytes", 4096},
                                           {"island_size", 3},
                                           {"zero", 2},
                                           {"compute", "bfloat16"},
                                           {"host", "here"},
                                           {"port", 1234},
                                           {"interface", "lo"},
                                           {"rendezvous_timeout", 9},
                                           {"collective_timeout", 8},
                                           {"workers", 3},
                                           {"virtual", true},
                                           {"threads", 2},
                                           {"pin", false}};
  TrainConfig config;
  for (const auto& [key, value] : values) set(config, key, value);
  const json printed = to_json(config);
  for (const TrainOption& candidate : train_options("gpt")) {
    ASSERT_TRUE(values.contains(candidate.key())) << candidate.key() << ": add it here";
    EXPECT_EQ(printed.at(candidate.key()), values.at(candidate.key())) << candidate.key();
  }
}

TEST(TrainOptions, BlanksThatAStrategyRefusesStayBlank) {
  TrainConfig config;
  config.sync.strategy = Strategy::kDdp;
  EXPECT_TRUE(to_json(config)["momentum"].is_null());
  config.sync.strategy = Strategy::kCo2;
  EXPECT_TRUE(to_json(config)["momentum"].is_null()) << "belongs to long rounds, with an automatic local_steps";
  EXPECT_TRUE(to_json(config)["fragments"].is_null()) << "chosen together with an automatic local_steps";
  config.sync.local_steps = 12;
  EXPECT_EQ(to_json(config)["momentum"], resolve(config.sync).momentum);
  EXPECT_EQ(to_json(config)["fragments"], resolve(config.sync).fragments);
}

TEST(TrainOptions, LocalStepsMayBeAuto) {
  TrainConfig config;
  EXPECT_EQ(to_json(config)["local_steps"], "auto");
  set(config, "local_steps", 7);
  EXPECT_EQ(to_json(config)["local_steps"], 7);
  set(config, "local_steps", "auto");
  EXPECT_EQ(config.sync.local_steps, kAuto);
  EXPECT_EQ(parse_text(option("local-steps"), "auto"), json("auto"));
  EXPECT_EQ(parse_text(option("local-steps"), "7"), json(7));
  EXPECT_THROW(parse_text(option("local-steps"), "automatic"), OptionError);
}

TEST(TrainOptions, OptionsAreCheckedTogether) {
  TrainConfig config;
  config.sync.local_steps = 4;
  config.sync.fragments = 5;
  EXPECT_THROW(check(config), OptionError);
  config.sync.fragments = 4;
  EXPECT_NO_THROW(check(config));
  config.sync.strategy = Strategy::kDdp;
  EXPECT_THROW(check(config), OptionError);
}

}  // namespace
}  // namespace co2::cli
