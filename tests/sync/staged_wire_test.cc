// A wire of two stages: the halves of float32 numbers go to the owner of a part, who adds up, and back to everybody. It
// must give the bits of the plain wire, and come to its end by itself.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/cluster.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/stages.h"
#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "island/island.h"
#include "options/recipe.h"
#include "outer/outer_pass.h"
#include "support/gate.h"
#include "support/toy.h"
#include "support/workers.h"
#include "sync/progress_exchange.h"
#include "sync/wire_format.h"

namespace co2 {
namespace {

using test::run_workers;

class HalvesWire final : public WireFormat {
 public:
  HalvesWire(const Island& island, WorkPtr* newest)
      : first_(island.across()), second_(island.another_across("second stage")), newest_(newest) {}

  Message allocate(std::int64_t numel, std::size_t /*stretches*/, bool with_sent) const override {
    Message message;
    message.payload = at::zeros({padded(numel)});
    if (with_sent) message.sent = at::empty({numel});
    return message;
  }
  Sent start(Message& message, const std::vector<Progress>& progress, const Send& send) override {
    message.numel = progress.empty() ? 0 : progress.back().range.end;
    const at::Tensor payload = message.payload.narrow(0, 0, padded(message.numel));
    payload.zero_();
    Sent sent;
    for (const auto& [range, consensus, live] : progress) {
      const auto cut = [&range = range](const at::Tensor& t) { return t.narrow(0, range.begin, range.size()); };
      sent.norms.push_back(outer::launch(consensus, live, send.weight, cut(payload), cut(message.sent)));
    }
    const at::Tensor received = at::empty_like(payload);
    const at::Tensor part = at::empty({payload.numel() / first_->size()});
    const auto halves = [](const at::Tensor& numbers) { return numbers.view(at::kShort); };
    message.works = {stages_->start({[=, this] { return first_->all_to_all(halves(received), halves(payload)); },
                                     [=, this] {
                                       const at::NoGradGuard no_grad;
                                       const auto parts = received.view({first_->size(), -1});
                                       part.copy_(parts[0]);
                                       for (int r = 1; r < first_->size(); ++r) part.add_(parts[r]);
                                       return second_->all_gather(halves(payload), halves(part));
                                     }})};
    if (newest_ != nullptr) *newest_ = message.works.front();
    message.bytes = wire_bytes(message.numel, Wire::kPlain);
    return sent;
  }
  std::vector<Arrived> sum(const Message& message, const Range& stretch) const override {
    return {{stretch, message.payload.narrow(0, stretch.begin, stretch.size()),
             message.sent.defined() ? message.sent.narrow(0, stretch.begin, stretch.size()) : message.sent}};
  }
  void visit_sent(StateVisitor& visitor, const std::string& name, Message& message,
                  const std::vector<Range>& /*stretches*/) const override {
    if (message.sent.defined()) visitor.tensor(name, message.sent);
  }
  void visit_sum(StateVisitor& visitor, const std::string& name, Message& message) const override {
    visitor.tensor(name, message.payload);
  }
  std::int64_t wire_bytes(std::int64_t numel, Wire /*wire*/) const override {
    return 2 * (first_->size() - 1) * 4 * numel / first_->size();
  }

 private:
  std::int64_t padded(std::int64_t numel) const {
    return (numel + first_->size() - 1) / first_->size() * first_->size();
  }

  std::shared_ptr<Communicator> first_;
  std::shared_ptr<Communicator> second_;
  WorkPtr* newest_;
  std::unique_ptr<Stages> stages_ = std::make_unique<Stages>(2);
};

/// What a worker needs for exchanges, without a Core.
struct Worker {
  Worker(const Cluster& cluster, const Options& options, bool staged, WorkPtr* newest = nullptr)
      : recipe(resolve(options)),
        toy({1, 37, 100}, 1),
        island(cluster, 1, cluster.communicator("data", Carries::kTensors)),
        model{.parameters = test::as_parameters(toy.parameter)},
        flat(model.parameters),
        shard(flat, 0),
        names(flat, shard, model) {
    std::unique_ptr<WireFormat> wire;
    if (staged) {
      wire = std::make_unique<HalvesWire>(island, newest);
    } else {
      wire = make_wire(recipe, island, flat.data(), shard.numel());
    }
    exchange = std::make_unique<ProgressExchange>(cluster.communicator("control"), 1, island, flat, shard, names,
                                                  flat.data(), 1, recipe, std::move(wire), trace);
  }
  void step(int rank, int number) {
    const at::NoGradGuard no_grad;
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * number + rank));
    for (const at::Tensor& p : toy.parameter) p.sub_(at::randn(p.sizes(), random), 0.1);
    exchange->after_step(1 + rank, {0.1}, 1e-3);
  }

  const Recipe recipe;
  test::Toy toy;
  Island island;
  const TrainedModel model;
  FlatParameters flat;
  Shard shard;
  NamedStretches names;
  Trace trace;
  std::unique_ptr<ProgressExchange> exchange;
};

TEST(StagedWire, GivesTheSameBitsAsThePlainOne) {
  for (const Options& options : {Options{.local_steps = 4, .fragments = 4, .momentum = 0.3, .wire = Wire::kPlain},
                                 Options{.local_steps = 3, .fragments = 1, .wire = Wire::kPlain},
                                 Options{.local_steps = 5, .fragments = 2, .delay = 4, .wire = Wire::kPlain}}) {
    for (const int workers : {1, 2, 3, 5}) {
      std::vector<at::Tensor> ends[2];
      for (const bool staged : {false, true}) {
        ends[staged].resize(static_cast<std::size_t>(workers));
        run_workers(workers, [&](const Cluster& cluster) {
          Worker worker(cluster, options, staged);
          for (int step = 0; step < 14; ++step) worker.step(cluster.rank(), step);
          worker.exchange->finish();
          ends[staged][static_cast<std::size_t>(cluster.rank())] = worker.flat.data().clone();
        });
      }
      for (std::size_t r = 0; r < ends[0].size(); ++r) EXPECT_TRUE(ends[0][r].equal(ends[1][r])) << workers << " " << r;
    }
  }
}

TEST(StagedWire, AdvancesWhileTheTrainingThreadDoesSomethingElse) {
  test::Gate gate;
  std::mutex mutex;
  std::condition_variable changed;
  int launched = 0;
  std::vector<WorkPtr> works(2);
  run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    const auto together = cluster.communicator("together");
    Worker worker(cluster, {.local_steps = 2, .fragments = 1}, true, &works[rank]);
    worker.step(cluster.rank(), 0);
    together->barrier()->wait();
    gate.close();
    worker.step(cluster.rank(), 1);  // launches, and comes back although nothing gets through
    EXPECT_FALSE(works[rank]->completed());
    {
      std::unique_lock lock(mutex);
      ++launched;
      changed.notify_all();
      changed.wait(lock, [&] { return launched == 2; });
    }
    gate.open();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!works[rank]->completed() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the training thread never calls into the exchange
    }
    EXPECT_TRUE(works[rank]->completed());
    worker.exchange->settle();
    worker.step(cluster.rank(), 2);
    worker.step(cluster.rank(), 3);  // applies what has arrived
    EXPECT_GT(worker.trace.total().transfer_seconds, 0);
    worker.exchange->finish();
  });
}

}  // namespace
}  // namespace co2
