#include "lab/result.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"

namespace co2::lab {
namespace {

class Result : public testing::Test {
 protected:
  void write(const std::string& summary, const std::string& metrics) {
    write_atomically(folder_.path() / "summary.json", summary);
    write_atomically(folder_.path() / "metrics.jsonl", metrics);
  }
  Figures read() const { return read_figures(folder_.path(), {.unit = "tokens", .data = "corpus"}); }

  const TemporaryFolder folder_{testing::TempDir()};
};

// 100 steps of 10 tokens, one each 0.1 s, after an evaluation of 3 s. A line is written a period of 5 steps after those
// that it is about.
std::string steady_metrics() {
  std::string text;
  for (int step = 10; step <= 100; step += 5) {
    text += fmt::format(R"({{"step":{},"wall_seconds":{},"training_seconds":{},"train_loss":{},"train_loss_step":{},)"
                        R"("local_steps":{}}})"
                        "\n",
                        step, 3 + 0.1 * step, 0.1 * step, 5 - 0.02 * (step - 5), step - 5, step < 50 ? 12 : 24);
  }
  return text;
}

TEST_F(Result, ComesFromTheFilesOfARun) {
  write(R"({"units_per_second":99,"units":1000,"steps":100,"training_seconds":10.1,"final_exchange_seconds":0.3,
            "transfer_seconds":2,"exposed_seconds":0.5,"bytes_sent_per_worker":3000,"train_loss":3.1,
            "validation_loss":3.2,"unit":"tokens","parameters":1234,"corpus":{"name":"synthetic"},
            "recipe":{"local_steps":12,"fragments":4}})",
        steady_metrics());
  const Figures figures = read();
  EXPECT_EQ(figures.units_per_second, 99);
  EXPECT_EQ(figures.final_exchange_seconds, 0.3);
  EXPECT_EQ(figures.overlap(), 0.75);
  EXPECT_EQ(figures.per_step(figures.bytes_per_worker), 30);
  EXPECT_EQ(figures.local_steps, 24) << "the one in force at the end";
  EXPECT_EQ(figures.fragments, 4);
  EXPECT_EQ(figures.data, "synthetic");
}

TEST_F(Result, TellsWhenALossWasReachedOnTheTrainingClock) {
  write(R"({"units_per_second":100,"units":1000,"steps":100})", steady_metrics());
  const auto curve = read().curve;
  ASSERT_EQ(curve.size(), 19U);
  // Smoothed over 5 steps, which is one line: the loss after step s is 5 - 0.02 s, reached s/10 seconds after the
  // beginning; the evaluation before does not count.
  for (const double step : {5.0, 50.0, 95.0}) {
    EXPECT_NEAR(seconds_to(curve, 5 - 0.02 * step + 1e-9).value_or(-1), step / 10, 1e-6);
  }
  EXPECT_FALSE(seconds_to(curve, 3.0));
  EXPECT_NEAR(lowest(curve), 5 - 0.02 * 95, 1e-9);
}

TEST_F(Result, DoesNotCountEvaluationsAsTraining) {
  // 20 steps of a second; after the tenth, and at the end, an evaluation of 100 s.
  std::string metrics;
  const auto line = [&](int step, double wall) {
    metrics += fmt::format(R"({{"step":{0},"wall_seconds":{1},"training_seconds":{0},"train_loss":{2}}})"
                           "\n",
                           step, wall, 5 - 0.1 * step);
  };
  for (int step = 1; step <= 20; ++step) line(step, step + (step > 10 ? 100 : 0));
  line(20, 220);
  write(R"({"units_per_second":1,"steps":20})", metrics);
  const auto curve = read().curve;
  EXPECT_NEAR(seconds_to(curve, 5 - 0.1 * 15 + 1e-9).value_or(-1), 15, 1e-9);
  EXPECT_NEAR(curve.back().seconds, 20, 1e-9);
}

TEST_F(Result, SmoothsOverATwentiethOfTheSteps) {
  std::string metrics;
  for (int step = 1; step <= 100; ++step) {
    metrics += fmt::format(R"({{"step":{0},"training_seconds":{0},"train_loss":{1}}})"
                           "\n",
                           step, step % 2 == 0 ? 2 : 4);
  }
  write(R"({"units_per_second":1,"steps":100})", metrics);
  const auto curve = read().curve;
  EXPECT_EQ(curve[0].loss, 4);
  EXPECT_NEAR(curve[99].loss, (2 + 4 + 2 + 4 + 2) / 5.0, 1e-9);
}

TEST_F(Result, OfAPeerMayLackWhatItCannotMeasure) {
  write(R"({"units_per_second":99,"steps":10,"transfer_seconds":null,"exposed_seconds":null,
            "bytes_sent_per_worker":null,"local_steps":8,"train_loss":3.1})",
        "{\"step\":1,\"training_seconds\":1,\"train_loss\":null,\"local_steps\":null}\n");
  const Figures figures = read();
  EXPECT_TRUE(std::isnan(figures.overlap()));
  EXPECT_TRUE(std::isnan(figures.per_step(figures.bytes_per_worker)));
  EXPECT_EQ(figures.local_steps, 8);
  EXPECT_TRUE(figures.curve.empty());
}

TEST_F(Result, MustBeWhole) {
  EXPECT_THROW(read(), DataError);
  write("{", "");
  EXPECT_THROW(read(), DataError);
  write("{}", "");
  EXPECT_THROW(read(), DataError) << "no throughput";
  write(R"({"units_per_second":99,"steps":10})", "{\"step\":1,\"wa");
  EXPECT_THROW(read(), DataError);
}

}  // namespace
}  // namespace co2::lab
