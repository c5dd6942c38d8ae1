#include "front/gradient_agreement.h"

#include <co2/options.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

namespace co2 {
namespace {

constexpr double kBeta2 = 0.95;

/// Workers as they would be in processes of their own: each has its parameters, an optimizer and an agreement.
struct Worker {
  std::vector<at::Tensor> parameters;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  GradientAgreement agreement;

  Worker(const std::vector<std::int64_t>& sizes, GradientAgreement watches, bool decoupled = true)
      : agreement(std::move(watches)) {
    for (const auto size : sizes) parameters.push_back(at::zeros({size}).requires_grad_());
    if (decoupled) {
      optimizer = std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1).betas({0.9, kBeta2}));
    } else {
      optimizer = std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1).betas({0.9, kBeta2}));
    }
  }
  at::Tensor values() const { return at::cat(parameters).detach().clone(); }
};

using Gradients = std::function<at::Tensor(std::size_t worker, const at::Tensor& signal)>;

/// Steps of all of them; the sums of their samples are what a control channel would bring.
void train(std::vector<Worker>& workers, int steps, const Gradients& gradient_of) {
  for (int step = 0; step < steps; ++step) {
    const auto signal = at::randn({workers[0].values().numel()});
    std::vector<double> sums(workers[0].agreement.width());
    for (std::size_t w = 0; w < workers.size(); ++w) {
      const auto gradient = gradient_of(w, signal);
      std::int64_t begin = 0;
      for (auto& parameter : workers[w].parameters) {
        parameter.mutable_grad() = gradient.slice(0, begin, begin + parameter.numel()).clone();
        begin += parameter.numel();
      }
      const auto sample = workers[w].agreement.sample(*workers[w].optimizer);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += sample[i];
      workers[w].optimizer->step();
    }
    for (auto& worker : workers) worker.agreement.take(sums);
  }
}

std::vector<Worker> workers_alone(int count, bool decoupled = true) {
  std::vector<Worker> workers;
  for (int i = 0; i < count; ++i)
    workers.emplace_back(std::vector<std::int64_t>{300, 0, 7, 900, 1}, GradientAgreement(0, 1, count), decoupled);
  return workers;
}

TEST(GradientAgreement, KnowsNoiseFromSignal) {
  for (const bool decoupled : {true, false}) {
    torch::manual_seed(1);
    auto equal = workers_alone(3, decoupled);
    EXPECT_EQ(equal[0].agreement.shortening(), 1);  // nothing is known
    train(equal, 80, [](std::size_t, const at::Tensor& signal) { return signal; });
    EXPECT_NEAR(equal[0].agreement.shortening(), 1, 1e-9);

    auto noisy = workers_alone(4, decoupled);
    train(noisy, 80, [](std::size_t, const at::Tensor& signal) { return at::randn_like(signal); });
    EXPECT_NEAR(noisy[0].agreement.shortening(), 2, 0.05);

    auto both = workers_alone(4, decoupled);
    train(both, 80, [](std::size_t, const at::Tensor& signal) { return signal + at::randn_like(signal); });
    EXPECT_NEAR(both[0].agreement.shortening(), std::sqrt(2 / (1 + 1. / 4)), 0.05);
    for (const auto& worker : both) EXPECT_EQ(worker.agreement.shortening(), both[0].agreement.shortening());
    EXPECT_EQ(equal[0].agreement.rate_factor(), equal[0].agreement.shortening());
    EXPECT_EQ(noisy[0].agreement.rate_factor(), 2);  // never more than √G
    EXPECT_GT(both[0].agreement.rate_factor(), both[0].agreement.shortening());
    EXPECT_LT(both[0].agreement.rate_factor(), 2);
  }
}

/// Long steps of a young model can throw it back for good (docs/choosing-local-steps.md).
TEST(GradientAgreement, DoublesInSixtyFourLooksAtMost) {
  torch::manual_seed(6);
  auto workers = workers_alone(4);
  const auto noise = [](std::size_t, const at::Tensor& signal) { return at::randn_like(signal); };
  train(workers, 1, noise);  // nobody has a second moment to show yet
  for (int look = 1; look < 64; ++look) {
    train(workers, 1, noise);
    EXPECT_GT(workers[0].agreement.shortening(), 1.7);
    EXPECT_NEAR(workers[0].agreement.rate_factor(), std::exp2(look / 64.0), 1e-12);
  }
  train(workers, 10, noise);
  EXPECT_EQ(workers[0].agreement.rate_factor(), 2);
}

TEST(GradientAgreement, IsHowMuchLongerTheStepWithTheMeanGradientWouldBe) {
  // Swings that all workers make are no noise, though a worker alone could not tell them from it.
  torch::manual_seed(2);
  auto workers = workers_alone(4);
  auto together = workers_alone(1);
  std::vector<at::Tensor> given(4);
  double longer = 0;
  for (int step = 0; step < 80; ++step) {
    const auto before = together[0].values();
    std::vector<at::Tensor> mine;
    for (const auto& worker : workers) mine.push_back(worker.values());
    const auto scale = at::logspace(-3, 3, before.numel());  // Adam does not care
    const double swing = step % 2 == 0 ? 1 : -1;
    train(workers, 1, [&](std::size_t w, const at::Tensor&) {
      return given[w] = scale * (swing + 0.3 + 1.5 * at::randn_like(scale));
    });
    train(together, 1, [&](std::size_t, const at::Tensor&) { return (given[0] + given[1] + given[2] + given[3]) / 4; });
    auto mean_step = at::zeros_like(before);
    for (std::size_t w = 0; w < workers.size(); ++w) mean_step += (workers[w].values() - mine[w]) / 4;
    longer = ((together[0].values() - before).norm() / mean_step.norm()).item<double>();
  }
  EXPECT_GT(longer, 1.2);
  EXPECT_NEAR(workers[0].agreement.shortening(), longer, 0.07 * longer);
}

TEST(GradientAgreement, WorkersAtTheSamePlaceOfTheirIslandsAreCompared) {
  torch::manual_seed(3);
  std::vector<Worker> workers;  // two islands of two, each of whose members has another half
  for (int rank = 0; rank < 4; ++rank)
    workers.emplace_back(std::vector<std::int64_t>{500}, GradientAgreement(rank % 2, 2, 2));
  train(workers, 60, [&](std::size_t, const at::Tensor& signal) { return at::randn_like(signal); });
  EXPECT_NEAR(workers[0].agreement.shortening(), std::sqrt(2.), 0.05);

  std::vector<Worker> agreeing;
  for (int rank = 0; rank < 4; ++rank)
    agreeing.emplace_back(std::vector<std::int64_t>{500}, GradientAgreement(rank % 2, 2, 2));
  train(agreeing, 60,
        [&](std::size_t w, const at::Tensor& signal) { return w % 2 == 0 ? signal : signal.flip(0) + 1; });
  EXPECT_NEAR(agreeing[0].agreement.shortening(), 1, 1e-9);
}

TEST(GradientAgreement, WhoHasNothingToShowIsNotTakenForOneWhoAgrees) {
  torch::manual_seed(4);
  auto workers = workers_alone(2);
  const auto noise = [](std::size_t, const at::Tensor& signal) { return at::randn_like(signal); };
  train(workers, 40, noise);
  const double before = workers[0].agreement.shortening();
  train(workers, 20, [](std::size_t w, const at::Tensor& signal) {
    return w == 0 ? signal : at::full_like(signal, std::numeric_limits<double>::quiet_NaN());
  });
  EXPECT_EQ(workers[0].agreement.shortening(), before);

  auto fresh = workers_alone(2);
  std::vector<double> sums = fresh[0].agreement.sample(*fresh[0].optimizer);  // no gradient, no state
  EXPECT_EQ(sums, std::vector<double>(fresh[0].agreement.width(), 0.0));
}

TEST(GradientAgreement, TheOthersLearnWithoutTheOneThatNeverShows) {
  const auto without = [](std::size_t absent) {
    return [absent](std::size_t w, const at::Tensor& signal) {
      return w == absent ? at::full_like(signal, std::numeric_limits<double>::quiet_NaN()) : at::randn_like(signal);
    };
  };
  torch::manual_seed(5);
  auto alone = workers_alone(4);
  train(alone, 60, without(1));
  EXPECT_NEAR(alone[0].agreement.shortening(), std::sqrt(3.), 0.05);
  for (const auto& worker : alone) EXPECT_EQ(worker.agreement.shortening(), alone[0].agreement.shortening());

  const auto in_islands = [&](int islands) {  // of two, of which the last lacks its second shard
    std::vector<Worker> workers;
    for (int rank = 0; rank < 2 * islands; ++rank)
      workers.emplace_back(std::vector<std::int64_t>{500}, GradientAgreement(rank % 2, 2, islands));
    train(workers, 60, without(workers.size() - 1));
    return workers[0].agreement.shortening();
  };
  EXPECT_NEAR(in_islands(2), std::sqrt(2.), 0.05);                     // the first shard alone
  EXPECT_NEAR(in_islands(3), std::sqrt(2 / (1. / 3 + 1. / 2)), 0.05);  // three of the first, two of the second
}

TEST(GradientAgreement, MattersForAdamThatKeepsItsSteps) {
  const auto recipe = [](Strategy strategy) { return resolve({.strategy = strategy}); };
  const std::vector<at::Tensor> parameters = {at::zeros({1}).requires_grad_()};
  const torch::optim::AdamW adamw(parameters);
  const torch::optim::Adam adam(parameters);
  const torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(1));
  EXPECT_TRUE(GradientAgreement::matters(recipe(Strategy::kCo2), adamw));
  EXPECT_TRUE(GradientAgreement::matters(recipe(Strategy::kCo2), adam));
  EXPECT_FALSE(GradientAgreement::matters(recipe(Strategy::kCo2), sgd));
  EXPECT_FALSE(GradientAgreement::matters(recipe(Strategy::kDdp), adamw));
  EXPECT_FALSE(GradientAgreement::matters(recipe(Strategy::kSlowMo), adamw));
}

}  // namespace
}  // namespace co2
