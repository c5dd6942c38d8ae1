// Runs that are saved into a folder and go on from there, in new objects that began with other parameters.

#include <co2/checkpoint.h>
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/gate.h"
#include "support/refusal.h"
#include "support/temporary.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using test::run_workers;
using test::TestFolder;
using test::unit_batch;
using test::UnitModel;

constexpr int kSteps = 9;

/// Where a worker's run is: one folder for all, or one for each.
using FolderOf = std::function<fs::path(int rank)>;

struct Ended {
  std::vector<at::Tensor> models;
  std::vector<std::vector<SaveReport>> reports;
  std::vector<std::optional<std::int64_t>> restored;
  std::vector<std::vector<PassedOver>> passed_over;
};

struct Plan {
  Options options;
  int workers = 2;
  FolderOf folder;
  bool save_every_step = false;
  bool restore = false;
  int end = kSteps;  ///< finishes if that is the last step, otherwise leaves
  int keep = 100;
};

Ended train(const Plan& plan) {
  const auto size = static_cast<std::size_t>(plan.workers);
  Ended ended{std::vector<at::Tensor>(size), std::vector<std::vector<SaveReport>>(size),
              std::vector<std::optional<std::int64_t>>(size), std::vector<std::vector<PassedOver>>(size)};
  const auto wire = [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); };
  run_workers(Cluster::in_process(plan.workers, wire), [&](const Cluster& cluster) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    UnitModel model(3);
    if (plan.restore) {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& p : model.parameters()) p.fill_(7);
    }
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
    Synchronizer sync(cluster, model, optimizer, plan.options);
    Saver saver(cluster, plan.folder(cluster.rank()), {.keep = plan.keep, .about = {{"model", "a toy"}}});
    std::int64_t step = 0;
    double weight = 0.1;
    const auto mine = [&](StateVisitor& visitor) {
      visitor.number("step", step);
      visitor.number("weight", weight);
    };
    if (plan.restore) {
      ended.restored[rank] = saver.restore(sync, mine);
      ended.passed_over[rank] = saver.passed_over();
      EXPECT_EQ(step, ended.restored[rank].value_or(0));
    }
    while (step < plan.end) {
      optimizer.zero_grad();
      (model.loss(unit_batch(static_cast<int>(step), 0, cluster.rank())) * (1 + weight)).backward();
      sync.step();
      ++step;
      weight *= 1.1;
      if (plan.save_every_step) saver.save(sync, mine);
    }
    saver.wait();
    ended.reports[rank] = saver.reports();
    if (plan.end < kSteps) return;
    sync.finish();
    ended.models[rank] = model.flat_copy();
  });
  return ended;
}

FolderOf shared(const TestFolder& folder) {
  return [&folder](int) { return folder / "run"; };
}
FolderOf apart(const TestFolder& folder) {
  return [&folder](int rank) { return folder / std::to_string(rank); };
}

fs::path of_step(const fs::path& run, int step) {
  char name[32];
  std::snprintf(name, sizeof(name), "step-%012d", step);
  return run / "checkpoints" / name;
}

void flip_a_bit(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(0, std::ios::end);
  const auto middle = stream.tellg() / 2;
  stream.seekg(middle);
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(middle);
  stream.put(byte);
}

TEST(Saver, GoesOnToTheSameBitsFromEveryStep) {
  const std::vector<std::pair<Options, int>> cases = {
      {{.local_steps = 4, .momentum = 0.3}, 3}, {{.local_steps = 3, .fragments = 3, .wire = Wire::kInt2}, 2},
      {{.strategy = Strategy::kDdp}, 2},        {{.local_steps = 4, .island_size = 2, .zero = 3}, 4},
      {{.strategy = Strategy::kNone}, 1},
  };
  for (const auto& [options, workers] : cases) {
    for (const bool one_folder : {true, false}) {
      const TestFolder folder;
      const FolderOf where = one_folder ? shared(folder) : apart(folder);
      const Ended whole = train({options, workers, where, /*save_every_step=*/true});
      for (const auto& reports : whole.reports) {
        ASSERT_EQ(reports.size(), kSteps);
        for (const SaveReport& report : reports) EXPECT_EQ(report.problem, "") << report.step;
      }
      for (int step = kSteps - 1; step >= 1; --step) {
        for (int rank = 0; rank < workers; ++rank) fs::remove_all(of_step(where(rank), step + 1));
        const Ended again = train({options, workers, where, false, /*restore=*/true});
        for (std::size_t rank = 0; rank < again.models.size(); ++rank) {
          EXPECT_EQ(again.restored[rank], step);
          EXPECT_TRUE(again.models[rank].equal(whole.models[rank])) << name(options.strategy) << " after " << step;
        }
      }
    }
  }
}

TEST(Saver, WhatIsTheSameInAnIslandIsWrittenOnce) {
  const TestFolder folder;
  train({{.strategy = Strategy::kDdp}, 3, shared(folder), true});
  const fs::path newest = of_step(folder / "run", kSteps);
  EXPECT_LT(2 * fs::file_size(newest / "worker-00001.safetensors"), fs::file_size(newest / "worker-00000.safetensors"));
}

TEST(Saver, ADamagedOneIsPassedOverByAll) {
  for (const bool one_folder : {true, false}) {
    const TestFolder folder;
    const FolderOf where = one_folder ? shared(folder) : apart(folder);
    const Options options{.local_steps = 2};
    const Ended whole = train({options, 2, where, true});
    flip_a_bit(of_step(where(1), kSteps) / "worker-00001.safetensors");
    fs::remove(of_step(where(0), kSteps - 1) / "worker-00000.safetensors");
    const Ended again = train({options, 2, where, false, true});
    EXPECT_EQ(again.restored, (std::vector<std::optional<std::int64_t>>(2, kSteps - 2)));
    EXPECT_TRUE(again.models[0].equal(whole.models[0]));
    ASSERT_EQ(again.passed_over[0].size(), 2U);
    ASSERT_EQ(again.passed_over[1].size(), 2U);
    for (const auto& passed_over : again.passed_over) {  // the reason, also where another worker has it
      EXPECT_NE(passed_over[0].second.find("worker-00001.safetensors"), std::string::npos) << passed_over[0].second;
      EXPECT_NE(passed_over[1].second.find("worker-00000.safetensors"), std::string::npos) << passed_over[1].second;
    }
  }
}

TEST(Saver, KeepsSoMany) {
  const TestFolder folder;
  train({{.local_steps = 2}, 2, shared(folder), true, false, kSteps, /*keep=*/2});
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints")) left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"step-000000000008", "step-000000000009"}));
}

TEST(Saver, ThereMayBeNone) {
  const TestFolder folder;
  const Ended ended = train({{.local_steps = 2}, 2, shared(folder), false, true});
  EXPECT_EQ(ended.restored[0], std::nullopt);
}

TEST(Saver, WhatDoesNotFitIsRefused) {
  const TestFolder folder;
  train({{.local_steps = 2}, 2, shared(folder), true});
  EXPECT_THROW(train({{.local_steps = 3}, 2, shared(folder), false, true}), DataError);
  for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints")) {
    flip_a_bit(entry.path() / "worker-00000.safetensors");
  }
  EXPECT_THROW(train({{.local_steps = 2}, 2, shared(folder), false, true}), DataError);
}

/// The user's own part is checked as well.
TEST(Saver, AProgramThatRemembersMoreIsAnotherOne) {
  const TestFolder folder;
  const auto run = [&](bool restore, int numbers) {
    run_workers(1, [&](const Cluster& cluster) {
      UnitModel model(3);
      torch::optim::SGD optimizer(model.parameters(), 0.01);
      Synchronizer sync(cluster, model, optimizer);
      Saver saver(cluster, folder / "run");
      std::vector<double> values(static_cast<std::size_t>(numbers), 0.5);
      const auto mine = [&](StateVisitor& visitor) {
        for (std::size_t i = 0; i < values.size(); ++i) visitor.number(std::to_string(i), values[i]);
      };
      if (restore) {
        saver.restore(sync, mine);
        return;
      }
      model.loss(unit_batch(0, 0, 0)).backward();
      sync.step();
      saver.save(sync, mine);
    });
  };
  run(false, 2);
  EXPECT_NO_THROW(run(true, 2));
  EXPECT_THROW(run(true, 1), DataError);
  EXPECT_THROW(run(true, 3), DataError);
}

/// What would be lost or mixed up in silence.
TEST(Saver, IsForOneFolderNamesOfTheirOwnAndTheTimeBetweenSteps) {
  const TestFolder folder;
  run_workers(2, [&](const Cluster& cluster) {
    UnitModel model(3);
    torch::optim::SGD optimizer(model.parameters(), 0.01);
    Synchronizer sync(cluster, model, optimizer, {.strategy = Strategy::kDdp, .accumulation_steps = 2});
    {
      Saver saver(cluster, folder / "run");
      EXPECT_NE(refusal([&] { Saver(cluster, folder / "elsewhere/../run"); }).find("another Saver"), std::string::npos);
      const auto pass = [&] { model.loss(unit_batch(0, 0, cluster.rank())).backward(); };
      pass();
      EXPECT_NE(refusal([&] { saver.save(sync); }).find("gradients"), std::string::npos);
      pass();
      sync.step();
      double number = 1;
      const auto twice = [&](StateVisitor& visitor) {
        visitor.number("position", number);
        visitor.number("position", number);
      };
      EXPECT_NE(refusal([&] { saver.save(sync, twice); }).find("mine/position"), std::string::npos);
      saver.save(sync);
      saver.wait();
      EXPECT_EQ(saver.reports().back().problem, "");
    }
    Saver again(cluster, folder / "run");  // the first is gone
    EXPECT_EQ(again.restore(sync), 1);
  });
}

/// Which tensors an optimizer remembers is part of what must fit.
TEST(Saver, AnOptimizerThatRemembersOtherThingsIsRefused) {
  using Options = torch::optim::AdamOptions;
  const TestFolder folder;
  const auto run = [&](bool restore, bool amsgrad) {
    run_workers(1, [&](const Cluster& cluster) {
      UnitModel model(3);
      torch::optim::Adam optimizer(model.parameters(), Options(0.01).amsgrad(amsgrad));
      Synchronizer sync(cluster, model, optimizer);
      Saver saver(cluster, folder / "run");
      if (restore) saver.restore(sync);
      model.loss(unit_batch(0, 0, 0)).backward();
      sync.step();
      if (!restore) saver.save(sync);
    });
  };
  for (const bool amsgrad : {false, true}) {
    run(false, amsgrad);
    EXPECT_NO_THROW(run(true, amsgrad));
    EXPECT_THROW(run(true, !amsgrad), DataError);
  }
}

/// A folder that vanishes, and comes back: training goes on, and so do checkpoints.
TEST(Saver, AProblemWithTheDiskIsReported) {
  const TestFolder folder;
  run_workers(2, [&](const Cluster& cluster) {
    const auto together = cluster.communicator("together");
    UnitModel model(3);
    torch::optim::SGD optimizer(model.parameters(), 0.01);
    Synchronizer sync(cluster, model, optimizer, {.local_steps = 1});
    Saver saver(cluster, folder / "run");
    const auto in_turn = [&](const std::function<void()>& body) {
      together->barrier()->wait();
      if (cluster.rank() == 0) body();
      together->barrier()->wait();
    };
    std::vector<std::string> problems;
    for (int step = 0; step < 3; ++step) {
      model.loss(unit_batch(step, 0, cluster.rank())).backward();
      sync.step();
      optimizer.zero_grad();
      in_turn([&] {
        if (step == 1) {  // a file in its place
          fs::remove_all(folder / "run/checkpoints");
          std::ofstream(folder / "run/checkpoints") << "";
        }
        if (step == 2) fs::remove(folder / "run/checkpoints");
      });
      saver.save(sync);
      saver.wait();
      for (const SaveReport& report : saver.reports()) problems.push_back(report.problem);
    }
    sync.finish();
    ASSERT_EQ(problems.size(), 3U);
    EXPECT_EQ(problems[0], "");
    EXPECT_NE(problems[1], "");
    EXPECT_EQ(problems[2], "");
  });
}

/// Nothing gets through for a while: save() returns all the same, and what is on the wire is part of the checkpoint.
TEST(Saver, DoesNotWaitForTheWire) {
  const TestFolder folder;
  test::Gate gate;
  std::barrier both(2);  // not over the wire, which is held
  std::vector<std::vector<SaveReport>> early(2), late(2);
  run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    const auto together = cluster.communicator("together");
    UnitModel model(3);
    torch::optim::SGD optimizer(model.parameters(), 0.01);
    Synchronizer sync(cluster, model, optimizer, {.local_steps = 2, .fragments = 1, .wire = Wire::kInt4});
    Saver saver(cluster, folder / "run");
    const auto step = [&](int number) {
      optimizer.zero_grad();
      model.loss(unit_batch(number, 0, cluster.rank())).backward();
      sync.step();
    };
    step(0);
    together->barrier()->wait();
    both.arrive_and_wait();
    gate.close();
    both.arrive_and_wait();
    step(1);
    saver.save(sync);
    step(2);
    early[rank] = saver.reports();
    both.arrive_and_wait();
    gate.open();
    step(3);
    saver.wait();
    late[rank] = saver.reports();
    sync.finish();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(early[rank].empty());
    ASSERT_EQ(late[rank].size(), 1U);
    EXPECT_EQ(late[rank][0].step, 2);
    EXPECT_EQ(late[rank][0].problem, "");
  }
}

/// Whoever goes first: the saver, or what it saves.
TEST(Saver, MayEndBeforeItsRunOrAfterIt) {
  for (const bool saver_first : {true, false}) {
    const TestFolder folder;
    run_workers(2, [&](const Cluster& cluster) {
      UnitModel model(3);
      torch::optim::SGD optimizer(model.parameters(), 0.01);
      auto sync = std::make_unique<Synchronizer>(cluster, model, optimizer, Options{.local_steps = 1});
      auto saver = std::make_unique<Saver>(cluster, folder / "run");
      model.loss(unit_batch(0, 0, cluster.rank())).backward();
      sync->step();
      saver->save(*sync);
      if (saver_first) {
        saver.reset();
        sync->finish();
      } else {
        sync.reset();
        saver.reset();
      }
    });
  }
}

}  // namespace
}  // namespace co2
