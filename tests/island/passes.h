#pragma once

#include <co2/co2.h>

#include <functional>
#include <string>
#include <vector>

#include "support/unit_model.h"

namespace co2::test {

/// Ways to use a model's units that differ between workers and between steps. `run` does one step's passes.
struct PassesCase {
  std::string name;
  int accumulation = 1;
  std::function<void(UnitModel&, Synchronizer&, int step, int rank)> run;
  UnitModel::Registered registered = UnitModel::Registered::kInOrderOfUse;
};

inline constexpr int kUnitsInCases = 6;

inline std::vector<PassesCase> passes_cases() {
  using Uses = std::function<int(int unit, int step, int pass, int rank)>;
  const auto each_pass = [](int passes, Uses uses) {
    return [=](UnitModel& model, Synchronizer&, int step, int rank) {
      for (int pass = 0; pass < passes; ++pass) {
        const auto of_unit = [&](int unit) { return uses(unit, step, pass, rank); };
        model.loss(unit_batch(step, pass, rank), of_unit).backward();
      }
    };
  };
  std::vector<PassesCase> cases;
  for (const int passes : {1, 3}) {
    const std::string times = ", " + std::to_string(passes) + " passes";
    for (const int unit : {0, 2, kUnitsInCases - 1}) {
      cases.push_back({"rank 1 leaves out unit " + std::to_string(unit) + times, passes,
                       each_pass(passes, [=](int u, int, int, int rank) { return rank == 1 && u == unit ? 0 : 2; })});
      cases.push_back({"rank 0 uses half of unit " + std::to_string(unit) + times, passes,
                       each_pass(passes, [=](int u, int, int, int rank) { return rank == 0 && u == unit ? 1 : 2; })});
    }
    cases.push_back({"both leave out units, others in every step" + times, passes,
                     each_pass(passes, [](int u, int step, int pass, int rank) {
                       return (u * 7 + step * 3 + pass * 5 + rank * 2) % 4 == 0 ? 0 : 2;
                     })});
    cases.push_back({"rank 1 uses no unit" + times, passes,
                     each_pass(passes, [](int, int, int, int rank) { return rank == 1 ? 0 : 2; })});
    cases.push_back(
        {"nobody uses unit 3" + times, passes, each_pass(passes, [](int u, int, int, int) { return u == 3 ? 0 : 2; })});
    cases.push_back({"units are registered back to front" + times, passes,
                     each_pass(passes, [](int u, int step, int, int rank) { return u == step && rank == 0 ? 0 : 2; }),
                     UnitModel::Registered::kBackToFront});
  }
  cases.push_back({"rank 1 uses no unit in the first pass only", 2,
                   each_pass(2, [](int, int, int pass, int rank) { return rank == 1 && pass == 0 ? 0 : 2; })});
  cases.push_back({"rank 0 has one pass less", 2, [](UnitModel& model, Synchronizer&, int step, int rank) {
                     for (int pass = rank == 0 ? 1 : 0; pass < 2; ++pass) {
                       model.loss(unit_batch(step, pass, rank)).backward();
                     }
                   }});
  cases.push_back({"rank 1 has no pass at all", 1, [](UnitModel& model, Synchronizer&, int step, int rank) {
                     if (rank == 0) model.loss(unit_batch(step, 0, rank)).backward();
                   }});
  cases.push_back({"rank 1 has only a forward pass", 1, [](UnitModel& model, Synchronizer&, int step, int rank) {
                     const at::Tensor loss = model.loss(unit_batch(step, 0, rank));
                     if (rank == 0) loss.backward();
                   }});
  cases.push_back({"evaluations in between", 2, [](UnitModel& model, Synchronizer& sync, int step, int rank) {
                     const auto evaluate = [&] {
                       const at::NoGradGuard no_grad;
                       model.loss(unit_batch(step, 7, rank));
                     };
                     evaluate();
                     const at::Tensor loss =
                         model.loss(unit_batch(step, 0, rank), [&](int u) { return u == rank ? 0 : 2; });
                     evaluate();
                     loss.backward();
                     sync.with_consensus(evaluate);
                     model.loss(unit_batch(step, 1, rank)).backward();
                     evaluate();
                   }});
  cases.push_back({"two forward passes, one backward", 1, [](UnitModel& model, Synchronizer&, int step, int rank) {
                     const at::Tensor first = model.loss(unit_batch(step, 0, rank));
                     (first + model.loss(unit_batch(step, 1, rank))).backward();
                   }});
  cases.push_back({"two forward passes, then two backward", 2, [](UnitModel& model, Synchronizer&, int step, int rank) {
                     const at::Tensor first = model.loss(unit_batch(step, 0, rank));
                     model.loss(unit_batch(step, 1, rank)).backward();
                     first.backward();
                   }});
  cases.push_back({"gradients of the input before", 1, [](UnitModel& model, Synchronizer&, int step, int rank) {
                     const at::Tensor x = unit_batch(step, 0, rank).requires_grad_();
                     const at::Tensor slope = torch::autograd::grad({model.loss(x)}, {x})[0];
                     model.loss(x.detach() + 0.01 * slope.sign()).backward();
                   }});
  return cases;
}

/// The model after some steps.
inline at::Tensor train_case(const PassesCase& passes, const Cluster& cluster, int stage) {
  UnitModel model(kUnitsInCases, passes.registered);
  torch::optim::SGD optimizer(model.parameters(), 0.02 / passes.accumulation);
  Synchronizer sync(
      cluster, model, optimizer,
      {.strategy = Strategy::kDdp, .accumulation_steps = passes.accumulation, .bucket_bytes = 1024, .zero = stage});
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    passes.run(model, sync, step, cluster.rank());
    sync.step();
  }
  sync.finish();
  const at::Tensor result = model.flat_copy();
  TORCH_CHECK(result.abs().max().item<double>() < 10, "the training of the test itself diverges");
  return result;
}

}  // namespace co2::test
