#include "lab/chart.h"

#include <gtest/gtest.h>

#include <vector>

#include "lab/panel.h"
#include "lab/records.h"

namespace co2::lab {
namespace {

/// Every element is closed by its own name, and no attribute or text breaks out.
void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (auto at = xml.find('<'); at != xml.npos; at = xml.find('<', at + 1)) {
    const auto end = xml.find('>', at);
    ASSERT_NE(end, xml.npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), tag.npos) << tag;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag.starts_with("/")) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(xml.find("nan"), xml.npos);
  EXPECT_EQ(xml.find("inf"), xml.npos);
}

LabOptions options_for(const std::string& rates, const std::string& strategies) {
  LabOptions options;
  options.scenarios = parse_rates(rates, 2);
  options.items = parse_strategies(strategies);
  options.words.unit = "tokens";
  return options;
}

std::string drawn(const LabOptions& options, const std::vector<RunRecord>& records) {
  std::vector<Table> tables;
  for (std::size_t i = 0; i < options.scenarios.size(); ++i) tables.push_back(aggregate(records, i, options.items, {}));
  return chart(options, records, tables);
}

TEST(Chart, ShowsEveryStrategyInBothPanels) {
  const LabOptions options = options_for("100mbit,1gbit,unlimited", "none,co2");
  std::vector<RunRecord> records{done_run(0, 0, 100), done_run(1, 0, 90), done_run(0, 0, 110), done_run(1, 0, 109)};
  records[2].scenario = records[3].scenario = 1;
  const std::string svg = drawn(options, records);
  expect_well_formed(svg);
  std::size_t lines = 0;
  for (auto at = svg.find("<polyline"); at != svg.npos; at = svg.find("<polyline", at + 1)) ++lines;
  EXPECT_EQ(lines, 4U);
  for (const char* words :
       {">none<", ">co2<", "100 Mbit/s", "1 Gbit/s", "unlimited", "tokens per second", "seconds of"}) {
    EXPECT_NE(svg.find(words), svg.npos) << words;
  }
}

TEST(Chart, CopesWithOneRunAndWithNone) {
  const LabOptions options = options_for("unlimited", "co2,co2+bfloat16,ddp@40");
  expect_well_formed(drawn(options, {done_run(0, 0, 100)}));
  expect_well_formed(drawn(options, {failed_run(0, 0)}));
  RunRecord without_curve = done_run(1, 0, 100);
  without_curve.figures->curve.clear();
  expect_well_formed(drawn(options, {without_curve, done_run(2, 0, 1)}));
}

TEST(Chart, GivesAPeerItsColourWhateverElseIsShown) {
  for (const char* strategies : {"none", "none,ddp,co2"}) {
    LabOptions options = options_for("100mbit", strategies);
    options.items.push_back(parse_peers("torchft-diloco")[0]);
    const std::string svg = drawn(options, {done_run(options.items.size() - 1, 0, 100)});
    EXPECT_NE(svg.find("stroke=\"#b5508a\""), svg.npos) << strategies;
  }
}

TEST(Chart, PutsScenariosThatAreNoNumberSideBySide) {
  const LabOptions options = options_for("1gbit:100mbit,1gbit/5s/100mbit", "all");
  std::vector<RunRecord> records;
  for (std::size_t item = 0; item < 9; ++item) records.push_back(done_run(item, 0, 100, 2, item == 1 ? 100 : 10));
  const std::string svg = drawn(options, records);
  expect_well_formed(svg);
  EXPECT_NE(svg.find("1gbit/5s/100mbit"), svg.npos);
}

TEST(Panel, EscapesText) { EXPECT_EQ(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;"); }

TEST(Panel, HasRoundNumbers) {
  const auto linear = round_ticks({.title = "", .low = 0, .high = 10'000}, 5);
  ASSERT_EQ(linear.size(), 6U);
  EXPECT_EQ(linear[1].second, "2,000");
  const auto logarithmic = round_ticks({.title = "", .low = 0.5, .high = 25, .logarithmic = true}, 5);
  EXPECT_EQ(logarithmic.front().second, "0.5");
  EXPECT_EQ(logarithmic.back().second, "20");
}

}  // namespace
}  // namespace co2::lab
