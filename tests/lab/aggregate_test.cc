#include "lab/aggregate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/records.h"
#include "lab/table.h"

namespace co2::lab {
namespace {

TEST(Spread, IsTheMedianAndTheEnds) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(spread_of({7}).median, 7);
  const Spread partly = spread_of({std::nan(""), 5, INFINITY});
  EXPECT_EQ(partly.median, 5);
  EXPECT_EQ(partly.count, 1);
  EXPECT_TRUE(std::isnan(spread_of({}).median));
}

TEST(Aggregate, TakesRatiosWithinARepeat) {
  // The machine was twice as fast in the second repeat: ratios of medians would say 0.75, those of pairs say 0.5.
  const auto items = parse_strategies("none,ddp,co2");
  const Table table = aggregate({done_run(0, 0, 100), done_run(1, 0, 10), done_run(2, 0, 50),   //
                                 done_run(0, 1, 200), done_run(1, 1, 20), done_run(2, 1, 100),  //
                                 done_run(0, 2, 200), done_run(1, 2, 20), done_run(2, 2, 150)},
                                0, items, {});
  ASSERT_EQ(table.rows.size(), 3U);
  const Row& co2 = table.rows[2];
  EXPECT_EQ(co2.to_none.median, 0.5);
  EXPECT_EQ(co2.to_none.high, 0.75);
  EXPECT_EQ(co2.to_ddp.median, 5);
  EXPECT_EQ(co2.units_per_second.median, 100);
  EXPECT_EQ(table.rows[0].to_none.median, 1);
  EXPECT_EQ(co2.transfer_ms.median, 40);
  EXPECT_EQ(co2.exposed_ms.median, 10);
  EXPECT_EQ(co2.overlap.median, 0.75);
  EXPECT_EQ(co2.bytes_per_step.median, 5e4);
}

TEST(Aggregate, WithoutAReferenceHasNoRatio) {
  const Table table = aggregate({done_run(0, 0, 100)}, 0, parse_strategies("co2"), {});
  EXPECT_EQ(table.rows[0].to_none.count, 0);
  EXPECT_EQ(table.rows[0].to_ddp.count, 0);
}

TEST(Aggregate, ComparesARepeatOnlyWithItself) {
  const auto items = parse_strategies("none,co2");
  const Table table =
      aggregate({done_run(0, 0, 100), failed_run(1, 0), failed_run(0, 1), done_run(1, 1, 50)}, 0, items, {});
  EXPECT_EQ(table.rows[1].to_none.count, 0);
  EXPECT_EQ(table.rows[1].failed, 1);
  EXPECT_EQ(table.rows[1].done, 1);
}

TEST(Aggregate, ChoosesATargetThatAllReach) {
  const auto items = parse_strategies("none,co2");
  const Table table = aggregate({done_run(0, 0, 100, 2.0, 10), done_run(1, 0, 100, 3.5, 20)}, 0, items, {});
  EXPECT_EQ(table.target_loss, 3.5);
  EXPECT_EQ(table.rows[0].seconds_to_target.median, 5);  // half the way from 5 to 2
  EXPECT_EQ(table.rows[1].seconds_to_target.median, 20);
}

TEST(Aggregate, SaysNothingAboutATargetThatIsNotReached) {
  const Table table = aggregate({done_run(0, 0, 100, 3)}, 0, parse_strategies("co2"), 2.5);
  EXPECT_EQ(table.rows[0].seconds_to_target.count, 0);
}

TEST(Aggregate, LeavesOutLossesOfRunsWithFewerSteps) {
  const auto items = parse_strategies("ddp@40,co2");
  const Table table = aggregate({done_run(0, 0, 10, 4.0), done_run(1, 0, 100, 2.0)}, 0, items, {});
  EXPECT_EQ(table.target_loss, 2.0);
  EXPECT_EQ(table.rows[0].train_loss.count, 0);
  EXPECT_EQ(table.rows[0].seconds_to_target.count, 0);
  EXPECT_EQ(table.rows[1].to_ddp.median, 10);  // throughput compares all the same
}

TEST(Aggregate, IgnoresOtherRates) {
  RunRecord elsewhere = done_run(0, 0, 100);
  elsewhere.scenario = 1;
  EXPECT_TRUE(aggregate({elsewhere}, 0, parse_strategies("co2"), {}).rows.empty());
}

LabOptions options_for(const std::string& strategies, int repeats) {
  LabOptions options;
  options.scenarios = parse_rates("100mbit", 2);
  options.items = parse_strategies(strategies);
  options.repeats = repeats;
  options.words.unit = "tokens";
  return options;
}

TEST(Table, ShowsEveryRowAndWhatFailed) {
  const LabOptions options = options_for("none,co2", 1);
  const Table table = aggregate({done_run(0, 0, 12345), failed_run(1, 0)}, 0, options.items, {});
  const std::string text = format_table(table, options);
  EXPECT_NE(text.find("tokens/s"), text.npos);
  EXPECT_NE(text.find("100mbit"), text.npos);
  EXPECT_NE(text.find("12,345"), text.npos);
  EXPECT_NE(text.find("co2: 1 of 1 run failed"), text.npos);
}

TEST(Table, ClaimsNoRepeatsThatDidNotHappen) {
  const LabOptions options = options_for("none,co2", 3);
  const auto text = [&](const std::vector<RunRecord>& records) {
    return format_table(aggregate(records, 0, options.items, {}), options);
  };
  const std::vector<RunRecord> two = {done_run(0, 0, 10), done_run(1, 0, 9), done_run(0, 1, 10)};
  EXPECT_NE(text(two).find("median of 2 of 3 repeats"), std::string::npos) << text(two);
  EXPECT_NE(text(two).find("co2: only 1 run\n"), std::string::npos) << text(two);
  EXPECT_EQ(text(two).find("none: only"), std::string::npos) << text(two);
  const std::vector<RunRecord> all = {done_run(0, 0, 10), done_run(0, 1, 10), failed_run(0, 2)};
  EXPECT_NE(text(all).find("median of 3 repeats"), std::string::npos) << text(all);
}

TEST(Table, CutsPercentsSoThat100MeansAll) {
  EXPECT_EQ(percent(0.9996), "99.9 %");
  EXPECT_EQ(percent(1), "100.0 %");
  EXPECT_EQ(percent(std::nan("")), "-");
}

TEST(Table, SaysWhenALinkIsOff) {
  const Rate asked{100e6};
  EXPECT_EQ(format_links({{.from = 0, .to = 1, .asked = asked, .measured = 95.6e6}}).find("OFF"), std::string::npos);
  EXPECT_NE(format_links({{.from = 0, .to = 1, .asked = asked, .measured = 80e6}}).find("OFF"), std::string::npos);
  EXPECT_EQ(format_links({{.from = 0, .to = 1, .asked = {}, .measured = 80e6}}).find("OFF"), std::string::npos);
}

}  // namespace
}  // namespace co2::lab
