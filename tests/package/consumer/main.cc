// Two workers in one process fit y = 3 x - 1, each on samples of its own: with a module and an optimizer, and once more
// with two tensors, and with a checkpoint in the middle. Exits with 0 if both end on the same line, and that line is
// close to the right one.
#include <co2/c10d.h>
#include <co2/checkpoint.h>
#include <co2/co2.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

struct Line {
  double slope = 0;
  double offset = 0;
};

Line train(const co2::Cluster& cluster) {
  torch::nn::Linear model(1, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  co2::Synchronizer sync(cluster, *model, optimizer, {.strategy = co2::Strategy::kCo2, .local_steps = 4});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(cluster.rank()) + 1);
  for (int step = 0; step < 400; ++step) {
    const auto x = torch::rand({16, 1}, generator);
    optimizer.zero_grad();
    torch::mse_loss(model->forward(x), 3 * x - 1).backward();
    sync.step();
  }
  sync.finish();
  return {model->weight.item<double>(), model->bias.item<double>()};
}

/// The same without torch::nn and torch::optim.
Line train_by_hand(const co2::Cluster& cluster) {
  at::Tensor slope = torch::zeros({1}).requires_grad_(), offset = torch::zeros({1}).requires_grad_();
  co2::Core core(cluster, {.parameters = {{slope, "slope"}, {offset, "offset"}}},
                 {.strategy = co2::Strategy::kCo2, .local_steps = 4});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(cluster.rank()) + 1);
  for (int step = 0; step < 400; ++step) {
    const auto x = torch::rand({16, 1}, generator);
    torch::mse_loss(slope * x + offset, 3 * x - 1).backward();
    if (core.begin_step({0.1})) {
      const at::NoGradGuard no_grad;
      for (const auto& [tensor, group, pieces] : core.trained()) {
        tensor.sub_(tensor.grad(), 0.1);
        tensor.grad().zero_();
      }
    }
    core.end_step({0.1});
  }
  core.finish();
  return {slope.item<double>(), offset.item<double>()};
}

/// The same in two lives: after 150 steps, in the middle of a round, everything is gone but the checkpoint.
Line train_in_two_lives(const co2::Cluster& cluster) {
  Line line;
  for (const std::int64_t until : {150, 400}) {
    torch::nn::Linear model(1, 1);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    co2::Synchronizer sync(cluster, *model, optimizer, {.strategy = co2::Strategy::kCo2, .local_steps = 4});
    co2::Saver saver(cluster, "run");
    std::int64_t step = 0;
    const auto mine = [&](co2::StateVisitor& visitor) { visitor.number("step", step); };
    saver.restore(sync, mine);
    if (until == 400 && step != 150) throw std::runtime_error("the checkpoint was not found");
    for (; step < until; ++step) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(2 * step + cluster.rank()));
      const auto x = torch::rand({16, 1}, generator);
      optimizer.zero_grad();
      torch::mse_loss(model->forward(x), 3 * x - 1).backward();
      sync.step();
    }
    saver.save(sync, mine);
    saver.wait();
    for (const co2::SaveReport& report : saver.reports()) {
      if (!report.problem.empty()) throw std::runtime_error(report.problem);
    }
    if (until < 400) continue;
    sync.finish();
    line = {model->weight.item<double>(), model->bias.item<double>()};
  }
  return line;
}

bool all_fit(Line (*train_one)(const co2::Cluster&)) {
  const auto clusters = co2::Cluster::in_process(2);
  std::vector<Line> lines(clusters.size());
  std::vector<std::exception_ptr> failures(clusters.size());
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    workers.emplace_back([&, i] {
      try {
        lines[i] = train_one(clusters[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (auto& worker : workers) worker.join();

  for (const auto& failure : failures) {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return false;
    }
  }
  for (const auto& line : lines) std::printf("y = %.4f x + %.4f\n", line.slope, line.offset);
  const bool same = lines[0].slope == lines[1].slope && lines[0].offset == lines[1].offset;
  const bool right = std::abs(lines[0].slope - 3) < 0.05 && std::abs(lines[0].offset + 1) < 0.05;
  return same && right;
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  // A group that is not there is refused, by the part of the package that knows c10d.
  try {
    co2::cluster_over(nullptr);
    return 1;
  } catch (const co2::OptionError&) {
  }
  return all_fit(train) && all_fit(train_by_hand) && all_fit(train_in_two_lives) ? 0 : 1;
}
