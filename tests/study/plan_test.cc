#include "study/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "study/combinations.h"
#include "study/studies.h"

namespace co2::study {
namespace {

using test::kDdp;
using test::kHead;
using test::Written;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Combinations, TheLastOptionChangesFastest) {
  const auto all = combinations({{"a", {1, 2}, ""}, {"b", {"x", "y"}, ""}});
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[1], (Combination{{"a", 1}, {"b", "y"}}));
  EXPECT_EQ(combinations({}).size(), 1U);
}

TEST(Combinations, TheMiddleIsTriedAndTheEndsAreLeftOut) {
  const auto rates = [](std::size_t count) {
    std::vector<int> result;
    for (const auto& values : nearest_the_middle({{"rate", {1, 2, 4, 8, 16}, ""}}, count))
      result.push_back(values.at("rate"));
    return result;
  };
  EXPECT_EQ(rates(1), (std::vector<int>{4}));
  EXPECT_EQ(rates(2), (std::vector<int>{2, 4}));
  EXPECT_EQ(rates(3), (std::vector<int>{2, 4, 8}));
  EXPECT_EQ(rates(5), (std::vector<int>{1, 2, 4, 8, 16}));
}

TEST(Combinations, TheMiddleOfSeveralListsIsThatOfAllOfThem) {
  const auto nearest = nearest_the_middle({{"a", {1, 2, 3}, ""}, {"b", {1, 2, 3}, ""}}, 1);
  EXPECT_EQ(nearest, (std::vector<Combination>{{{"a", 2}, {"b", 2}}}));
}

TEST(Plan, AGridIsARowForEachPlaceComparedWithItsCounterpart) {
  const Plan plan = Written(kHead + kDdp +
                            "[row.grid]\nworkers = [2, 4]\n[[row]]\nname = \"co2\"\n[row.grid]\nlocal_steps = [2, 12]\n"
                            "workers = [2, 4]\n")
                        .plan();
  ASSERT_EQ(plan.rows.size(), 6U);
  EXPECT_EQ(plan.rows[5].label, "co2 local_steps=12 workers=4");
  EXPECT_EQ(plan.rows[5].reference, 1U);
  EXPECT_EQ(plan.rows[4].reference, 0U);
  EXPECT_EQ(plan.rows[1].reference, 1U);  // its own
  EXPECT_EQ(plan.count(), 18U);
  EXPECT_EQ(plan.rows[5].trials[0].runs[2].config["seed"], 3);
  EXPECT_EQ(plan.rows[5].config()["virtual"], true);
  EXPECT_EQ(plan.samples(), 100 * 4 * 3 * (2 + 4) * 3);
}

TEST(Plan, TheSameRunIsOneRun) {
  const Plan plan = Written(kHead + kDdp + "[[row]]\nname = \"again\"\nstrategy = \"ddp\"\n").plan();
  EXPECT_EQ(plan.rows[0].trials[0].runs[0].key, plan.rows[1].trials[0].runs[0].key);
  EXPECT_EQ(plan.count(), 3U);
}

TEST(Plan, KeysFollowWhatIsLearnedAndNothingElse) {
  const auto key = [](const Settings& settings) { return run_with(settings, test::complete).key; };
  const Settings base = {{"workers", {4}}};
  Settings other = base;
  other["checkpoint_every"] = {"5m"};
  EXPECT_EQ(key(base), key(other));
  other["momentum"] = {0.5};
  EXPECT_NE(key(base), key(other));
  EXPECT_EQ(run_with(base, test::complete).samples(), 100 * 4 * 4);
}

const std::string kTune = "[tune]\nseeds = [101]\nsteps = 50\nlearning_rate = [0.001, 0.002, 0.004]\n";

TEST(Plan, EveryRowIsTriedAndRunWithItsOwnValues) {
  const Plan plan =
      Written(kHead + kTune + kDdp + "[[row]]\nname = \"co2\"\n[row.tune]\nmomentum = [0.0, 0.3, 0.6]\n").plan();
  ASSERT_EQ(plan.rows[1].trials.size(), 3U);
  const Trial& trial = plan.rows[1].trials[1];
  EXPECT_EQ(trial.tries.size(), 1U);
  EXPECT_EQ(trial.tries[0].config["steps"], 50);
  EXPECT_EQ(trial.runs[0].config["steps"], 100);
  EXPECT_EQ(trial.runs[0].config["momentum"], trial.values["momentum"]);
  EXPECT_EQ(trial.runs[0].config["learning_rate"], 0.002);
  EXPECT_EQ(plan.count(), 2U * (3 + 3));
}

TEST(Plan, ABudgetCutsLongListsAndRefusesShortOnes) {
  const std::string tune = "[tune]\nbudget = 2\nseeds = [101]\nlearning_rate = [0.001, 0.002, 0.004]\n";
  EXPECT_EQ(Written(kHead + tune + kDdp).plan().rows[0].trials.size(), 2U);
  const std::string refusal = Written(kHead + tune + kDdp + "[row.tune]\nlearning_rate = [0.001]\n").refusal();
  EXPECT_TRUE(contains(refusal, "has 1 combinations to try, and the budget is 2")) << refusal;
}

struct Contradiction {
  std::string text;
  std::string message;
};

class Contradictions : public testing::TestWithParam<Contradiction> {};

TEST_P(Contradictions, AreRefused) {
  const std::string refusal = Written(kHead + GetParam().text).refusal();
  EXPECT_TRUE(contains(refusal, GetParam().message)) << refusal;
}

INSTANTIATE_TEST_SUITE_P(
    All, Contradictions,
    testing::Values(Contradiction{"[[row]]\nname = \"dpd\"\n", "reference = 'ddp'"},
                    Contradiction{"[[row]]\nname = \"quite\"\n[[row]]\nname = \"other\"\n",
                                  "is no row. There are: other, quite"},
                    Contradiction{kDdp + kDdp, "has two rows 'ddp'"},
                    Contradiction{kDdp + "typo = 3\n", "row 'ddp': unknown option 'typo'"},
                    Contradiction{kDdp + "[row.grid]\nworkers = [2, 4]\n[[row]]\nname = \"co2\"\nworkers = 8\n",
                                  "row 'co2' has nothing to be compared with: the grid of 'ddp' has no workers = 8"},
                    Contradiction{kDdp + "[[row]]\nname = \"co2\"\nsteps = 200\n", "only equal samples compare"},
                    Contradiction{kDdp + "steps = 10\n[row.grid]\nsteps = [10, 20]\n", "has steps in its grid too"},
                    Contradiction{kDdp + "[row.tune]\nmomentum = [0.1]\n", "the study has no [tune]"},
                    Contradiction{kTune + kDdp + "learning_rate = 0.1\n", "sets learning_rate itself"},
                    Contradiction{kTune + kDdp + "[[row]]\nname = \"co2\"\n[row.tune]\nmomentum = [0.1]\n",
                                  "has 1 combinations to try, and row 'ddp' has 3"},
                    Contradiction{"[tune]\nseeds = [2]\nlearning_rate = [0.1]\n" + kDdp, "seed 2 is in [tune]"}));

TEST(Plan, AMetricIsOneThatEveryRowHas) {
  const auto with = [](const std::string& metric) { return "metric = \"" + metric + "\"\n" + kHead; };
  const std::string image = "[[row]]\nname = \"images\"\ntask = \"image\"\n";
  for (const char* metric : {"validation_loss", "train_loss"}) {
    EXPECT_NO_THROW(Written(with(metric) + kDdp + image).plan()) << metric;
  }
  const std::string refusal = Written(with("validation_los") + kDdp).refusal();
  EXPECT_TRUE(contains(refusal, "metric = 'validation_los'")) << refusal;
  EXPECT_TRUE(contains(refusal, "did you mean 'validation_loss'? It has: validation_loss, train_loss")) << refusal;
  EXPECT_NO_THROW(Written(with("accuracy") + "task = \"image\"\n" + kDdp).plan());
  const std::string mixed = Written(with("accuracy") + "task = \"image\"\n" + kDdp + "task = \"gpt\"\n").refusal();
  EXPECT_TRUE(contains(mixed, "no metric of the task gpt, which row 'ddp' trains")) << mixed;
}

TEST(Plan, WorkersMustBeSaid) {
  const std::string head = "name = \"small\"\nseeds = [1]\nreference = \"ddp\"\n";
  EXPECT_TRUE(contains(Written(head + kDdp).refusal(), "workers is missing"));
}

}  // namespace
}  // namespace co2::study
