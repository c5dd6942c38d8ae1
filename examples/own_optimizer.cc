// Trains a list of tensors, with an optimizer of its own and without torch::nn or torch::optim, over a process group
// that this program makes itself: what a binding to another language would do, or somebody with other ideas about
// optimizers.
//
//     for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./own_optimizer & done; wait
//
// Every worker has samples of its own of y = sin(3x), and ends with the same two-layer network.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <co2/c10d.h>
#include <co2/co2.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace {

/// Lion (Chen et al. 2023): the sign of a mean of gradients.
class Lion {
 public:
  explicit Lion(std::vector<co2::TrainedTensor> trained) : trained_(std::move(trained)) {
    for (const auto& [tensor, group, pieces] : trained_) means_.push_back(at::zeros_like(tensor));
  }
  void step(double rate) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      at::Tensor& tensor = trained_[i].tensor;
      const at::Tensor gradient = tensor.grad();
      if (!gradient.defined()) continue;
      tensor.sub_(at::sign(0.9 * means_[i] + 0.1 * gradient), rate);
      means_[i].mul_(0.99).add_(gradient, 0.01);
      tensor.mutable_grad().reset();
    }
  }

 private:
  std::vector<co2::TrainedTensor> trained_;
  std::vector<at::Tensor> means_;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw co2::ClusterError(std::string(name) + " is not set: see the first lines of this example");
  return value;
}

c10::intrusive_ptr<c10d::ProcessGroup> make_group(int rank, int size) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT")));
  store_options.isServer = rank == 0;
  auto store = c10::make_intrusive<c10d::TCPStore>(variable("MASTER_ADDR"), store_options);
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("mine", store), rank,
                                                          size, gloo_options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

void train(int rank, int size) {
  at::set_num_threads(1);
  const co2::Cluster cluster = co2::cluster_over(make_group(rank, size));
  auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank) + 1);
  at::Tensor first = at::randn({1, 32}, random), bias = at::randn({32}, random),
             second = at::randn({32, 1}, random) / 6;
  for (at::Tensor& tensor : std::vector{first, bias, second}) tensor.set_requires_grad(true);
  const auto loss = [&](const at::Tensor& x) {
    return (at::tanh(x.matmul(first) + bias).matmul(second) - at::sin(3 * x)).square().mean();
  };

  co2::Core core(cluster, {.parameters = {{first, "first"}, {bias, "bias"}, {second, "second"}}},
                 {.strategy = co2::Strategy::kCo2, .local_steps = 4});
  Lion lion(core.trained());
  const at::Tensor everywhere = at::linspace(-1, 1, 101).unsqueeze(1);
  const double before = loss(everywhere).item<double>();
  constexpr int kSteps = 600;
  for (int step = 0; step < kSteps; ++step) {
    const double rate = 0.01 * (1 - step / static_cast<double>(kSteps));
    loss(2 * at::rand({16, 1}, random) - 1).backward();
    if (core.begin_step({rate})) lion.step(rate);
    core.end_step({rate});
  }
  core.finish();
  const double after = loss(everywhere).item<double>();
  std::printf("rank %d: loss %.6f -> %.6f, sum of parameters %.9f, %.0f %% of the communication hidden\n", rank, before,
              after, core.live().to(at::kDouble).sum().item<double>(), 100 * core.trace().total().overlap());
}

}  // namespace

int main() {
  try {
    train(std::stoi(variable("RANK")), std::stoi(variable("WORLD_SIZE")));
  } catch (const co2::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
