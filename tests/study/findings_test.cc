#include "study/findings.h"

#include <gtest/gtest.h>

#include <cmath>

#include "study/outcomes.h"
#include "study/report.h"

namespace co2::study {
namespace {

using test::kDdp;
using test::kHead;
using test::ResultFolder;
using test::Written;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string kCo2 = "[[row]]\nname = \"co2\"\n";
const std::string kTune = "[tune]\nseeds = [101, 102]\nlearning_rate = [0.001, 0.002, 0.004]\n";

void add_runs(ResultFolder& folder, const Trial& trial, const std::vector<double>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i) folder.add(trial.runs[i], losses[i]);
}

TEST(Findings, ComparesSeedBySeed) {
  const Written study(kHead + kDdp + kCo2);
  const Plan plan = study.plan();
  ResultFolder folder;
  add_runs(folder, plan.rows[0].trials[0], {2.0, 2.2, 2.4});
  add_runs(folder, plan.rows[1].trials[0], {2.1, 2.3, 2.5});
  const Results results = folder.read();
  const Findings findings = findings_of(study.file(), plan, results);
  const Finding& co2 = findings.rows[1];
  EXPECT_NEAR(co2.metric.mean, 2.3, 1e-12);
  EXPECT_NEAR(co2.metric.deviation, 0.2, 1e-12);
  ASSERT_TRUE(co2.test);
  EXPECT_EQ(co2.test->pairs, 3U);
  EXPECT_NEAR(co2.percent, 100 * 0.1 / 2.2, 1e-9);
  EXPECT_EQ(verdict(co2, false), "worse");
  EXPECT_EQ(verdict(co2, true), "better");
  EXPECT_FALSE(findings.rows[0].test);
  EXPECT_EQ(verdict(findings.rows[0], false), "the reference");
  EXPECT_EQ(findings.done, 6U);
  EXPECT_EQ(findings.missing(), 0U);
}

TEST(Findings, NoiseIsCalledNoise) {
  const Written study(kHead + kDdp + kCo2);
  const Plan plan = study.plan();
  ResultFolder folder;
  add_runs(folder, plan.rows[0].trials[0], {2.0, 2.2, 2.4});
  add_runs(folder, plan.rows[1].trials[0], {2.3, 2.0, 2.5});
  EXPECT_EQ(verdict(findings_of(study.file(), plan, folder.read()).rows[1], false), "within noise");
}

TEST(Findings, WhatIsMissingFailedOrDivergedIsSaid) {
  const Written study(kHead + kDdp + kCo2);
  const Plan plan = study.plan();
  ResultFolder folder;
  add_runs(folder, plan.rows[0].trials[0], {2.0, 2.2, 2.4});
  folder.add(plan.rows[1].trials[0].runs[0], std::nan(""));
  folder.add_failure(plan.rows[1].trials[0].runs[1]);
  const Results results = folder.read();
  const Findings findings = findings_of(study.file(), plan, results);
  EXPECT_EQ(findings.rows[1].diverged, 1U);
  EXPECT_EQ(findings.rows[1].failed, 1U);
  EXPECT_EQ(findings.rows[1].missing, 1U);
  EXPECT_EQ(verdict(findings.rows[1], false), "1 diverged");
  const std::string text = report_text(study.file(), findings);
  EXPECT_TRUE(contains(text, "co2: 1 run missing") && contains(text, "co2: 1 run failed")) << text;
}

TEST(Findings, TheBestTrialIsChosenAndItsRunsCount) {
  const Written study(kHead + kTune + kDdp);
  const Plan plan = study.plan();
  const Row& row = plan.rows[0];
  ResultFolder folder;
  const auto selection = [&] { return select(row, folder.read(), "validation_loss", false); };
  EXPECT_TRUE(selection().open);
  for (const auto& run : row.trials[0].tries) folder.add(run, 2.5);
  folder.add(row.trials[1].tries[0], 2.0);
  folder.add(row.trials[1].tries[1], std::nan(""));  // the best by far, if this one did not count
  for (const auto& run : row.trials[2].tries) folder.add(run, 2.4);
  ASSERT_FALSE(selection().open);
  EXPECT_EQ(selection().trial, 2U);
  EXPECT_TRUE(std::isnan(selection().scores[1]));
  add_runs(folder, row.trials[2], {2.1, 2.2, 2.3});
  const Results results = folder.read();
  const Findings findings = findings_of(study.file(), plan, results);
  EXPECT_NEAR(findings.rows[0].metric.mean, 2.2, 1e-12);
  const std::string text = report_text(study.file(), findings);
  EXPECT_TRUE(contains(text, "Every row was given 3 trials (seeds 101, 102)")) << text;
  // Of 0.001, 0.002 and 0.004; which of them is the last trial, the order of the middle says.
  const double chosen = row.trials[2].values["learning_rate"];
  EXPECT_NE(chosen, 0.002);
  EXPECT_TRUE(contains(text, "that was tried; a better one may lie beyond")) << text;
}

TEST(Findings, NoTrialThatSucceedsIsNoChoice) {
  const Written study(kHead + kTune + kDdp);
  const Plan plan = study.plan();
  ResultFolder folder;
  for (const Trial& trial : plan.rows[0].trials) {
    for (const auto& run : trial.tries) folder.add_failure(run);
  }
  const Results results = folder.read();
  EXPECT_EQ(verdict(findings_of(study.file(), plan, results).rows[0], false), "no trial succeeded");
}

TEST(Findings, TimesOnALinkFollowTheReferencesSteps) {
  const Written study(kHead + "[link]\nrate = \"100mbit\"\n" + kDdp + kCo2);
  const Plan plan = study.plan();
  ResultFolder folder;
  add_runs(folder, plan.rows[0].trials[0], {2.0});
  add_runs(folder, plan.rows[1].trials[0], {2.0});
  const Results results = folder.read();
  const Findings findings = findings_of(study.file(), plan, results);
  // 40 s for 100 steps of 4 workers, in turns: 0.1 s. 1.25 MB at 100 Mbit/s: 0.1 s, of which backward hides 2/3 of 0.1.
  EXPECT_NEAR(findings.compute_seconds.value(), 0.1, 1e-12);
  EXPECT_NEAR(findings.rows[0].step_seconds.value(), 0.1 / 3 + 0.1, 1e-12);
  EXPECT_NEAR(findings.rows[1].step_seconds.value(), 0.1, 1e-12);
}

TEST(Report, MarkdownAndJsonSayTheSame) {
  const Written study(kHead + kDdp + kCo2);
  const Plan plan = study.plan();
  ResultFolder folder;
  add_runs(folder, plan.rows[0].trials[0], {2.0, 2.2, 2.4});
  add_runs(folder, plan.rows[1].trials[0], {2.1, 2.35, 2.5});
  const Results results = folder.read();
  const Findings findings = findings_of(study.file(), plan, results);
  const auto json = report_json(study.file(), findings);
  EXPECT_NEAR(json["rows"][1]["mean"].get<double>(), 6.95 / 3, 1e-12);
  EXPECT_EQ(json["rows"][1]["test"]["name"], "paired t-test, two-sided");
  EXPECT_EQ(json["rows"][1]["verdict"], "worse");
  const std::string markdown = report_markdown(study.file(), findings);
  EXPECT_TRUE(contains(markdown, "| co2 | 3 | 2.3167 ± 0.2021 | +5.30 % |")) << markdown;
}

}  // namespace
}  // namespace co2::study
