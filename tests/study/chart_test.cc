#include "study/chart.h"

#include <gtest/gtest.h>

#include "study/outcomes.h"

namespace co2::study {
namespace {

using test::kDdp;
using test::kHead;
using test::ResultFolder;
using test::Written;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string drawn(const std::string& text, std::size_t seeds) {
  const Written study(text);
  const Plan plan = study.plan();
  ResultFolder folder;
  for (const Row& row : plan.rows) {
    for (std::size_t i = 0; i < seeds; ++i) folder.add(row.trials[0].runs[i], 2.0 + 0.1 * static_cast<double>(i));
  }
  const Results results = folder.read();
  return chart(study.file(), findings_of(study.file(), plan, results), {.unit = "tokens"});
}

const std::string kRows = kDdp + "[[row]]\nname = \"co2\"\n[row.grid]\nlocal_steps = [2, 12]\n";

TEST(StudyChart, HasALineAndABandPerRowInBothPanels) {
  const std::string svg = drawn(kHead + "[link]\nrate = \"100mbit\"\n" + kRows, 3);
  EXPECT_EQ(count(svg, "<polyline"), 6U);
  EXPECT_EQ(count(svg, "<polygon"), 6U);
  EXPECT_EQ(count(svg, ">co2 local_steps=12<"), 2U);
  EXPECT_NE(svg.find("100 Mbit/s"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(StudyChart, OneSeedHasNoBandAndWithoutALinkThereIsNoTime) {
  const std::string svg = drawn(kHead + kRows, 1);
  EXPECT_EQ(count(svg, "<polyline"), 3U);
  EXPECT_EQ(count(svg, "<polygon"), 0U);
  EXPECT_EQ(svg.find("Against time"), std::string::npos);
}

TEST(StudyChart, ShowsTheRowsThatAreAskedFor) {
  const std::string svg = drawn("drawn = [\"co2 local_steps=12\"]\n" + kHead + kRows, 2);
  EXPECT_EQ(count(svg, "<polyline"), 1U);
}

TEST(StudyChart, CopesWithoutResults) { EXPECT_EQ(count(drawn(kHead + kRows, 0), "<polyline"), 0U); }

}  // namespace
}  // namespace co2::study
