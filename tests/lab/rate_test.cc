#include "lab/rate.h"

#include <co2/error.h>
#include <gtest/gtest.h>

namespace co2::lab {
namespace {

TEST(Rate, HasANumberAndAUnit) {
  EXPECT_EQ(parse_rate("100mbit").bits_per_second, 100e6);
  EXPECT_EQ(parse_rate("1.5gbit").bits_per_second, 1.5e9);
  EXPECT_EQ(parse_rate("2000kbit").bits_per_second, 2e6);
  EXPECT_EQ(parse_rate("5000000bit").bits_per_second, 5e6);
  EXPECT_EQ(parse_rate("1GBit").bits_per_second, 1e9);
  EXPECT_TRUE(parse_rate("unlimited").unlimited());
}

TEST(Rate, RefusesWhatIsNone) {
  for (const char* text : {"", "100", "mbit", "-1mbit", "0mbit", "0.5mbit", "200gbit", "1e3mbit", "nanmbit", "infmbit",
                           "100 mbit", "100mbits", "100mb", "0x10mbit", "99999999999999999999gbit"}) {
    EXPECT_THROW(parse_rate(text), OptionError) << text;
  }
}

TEST(Rates, AreAListForAllHosts) {
  const auto scenarios = parse_rates("100mbit,1gbit,unlimited", 3);
  ASSERT_EQ(scenarios.size(), 3U);
  EXPECT_TRUE(scenarios[0].constant());
  EXPECT_EQ(scenarios[1].phases[0].host(2).bits_per_second, 1e9);
  EXPECT_TRUE(scenarios[2].slowest().unlimited());
}

TEST(Rates, MayDifferBetweenHosts) {
  const Scenario scenario = parse_rates("1gbit:100mbit:unlimited", 3)[0];
  EXPECT_FALSE(scenario.constant());
  EXPECT_EQ(scenario.phases[0].host(1).bits_per_second, 100e6);
  EXPECT_TRUE(scenario.phases[0].host(2).unlimited());
  EXPECT_EQ(scenario.slowest().bits_per_second, 100e6);
  EXPECT_EQ(scenario.folder_name(), "1gbit-100mbit-unlimited");
  EXPECT_THROW(parse_rates("1gbit:100mbit", 3), OptionError);
  EXPECT_THROW(parse_rates("1gbit:", 2), OptionError);
}

TEST(Rates, MayChangeWithTime) {
  const auto scenario = parse_rates("1gbit/20s/100mbit:10mbit/500ms/unlimited", 2)[0];
  ASSERT_EQ(scenario.phases.size(), 3U);
  EXPECT_EQ(scenario.phases[0].seconds, 20);
  EXPECT_EQ(scenario.phases[1].seconds, 0.5);
  EXPECT_EQ(scenario.phases[1].host(1).bits_per_second, 10e6);
  EXPECT_EQ(scenario.slowest().bits_per_second, 10e6);
  EXPECT_EQ(scenario.folder_name(), "1gbit_20s_100mbit-10mbit_500ms_unlimited");
  for (const char* text : {"1gbit/20s", "1gbit/20s/", "1gbit//100mbit", "1gbit/20/100mbit", "1gbit/0s/100mbit",
                           "1gbit/-1s/100mbit", "1gbit/2000min/100mbit", "/20s/1gbit"}) {
    EXPECT_THROW(parse_rates(text, 2), OptionError) << text;
  }
}

TEST(Rates, MustBeThereOnce) {
  EXPECT_THROW(parse_rates("", 2), OptionError);
  EXPECT_THROW(parse_rates("1gbit,", 2), OptionError);
  EXPECT_THROW(parse_rates("1gbit,1gbit", 2), OptionError);
}

}  // namespace
}  // namespace co2::lab
