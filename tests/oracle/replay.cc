// Trains the cases of a JSON file with the library and writes down what each worker holds after every step, for the
// comparison with oracle.py:   oracle_replay BATCH.json OUTPUT_FOLDER
//
// Every worker minimises a diagonal quadratic whose target changes each step: gradient = a * live - b[worker][step].
// Worker r starts from the initial parameters plus r, so that only rank 0's may count.

#include <co2/co2.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

using Json = nlohmann::json;

std::vector<float> read_floats(const std::string& path, std::int64_t offset, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::ifstream file(path, std::ios::binary);
  file.seekg(offset * static_cast<std::int64_t>(sizeof(float)));
  file.read(reinterpret_cast<char*>(values.data()), count * static_cast<std::int64_t>(sizeof(float)));
  if (!file) throw co2::DataError(fmt::format("{}: no {} floats at element {}", path, count, offset));
  return values;
}

class Model : public torch::nn::Module {
 public:
  Model(const std::vector<std::int64_t>& sizes, const std::vector<float>& values) {
    std::int64_t cursor = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      auto value = torch::empty({sizes[i]});
      std::copy_n(values.data() + cursor, sizes[i], value.data_ptr<float>());
      weights.push_back(register_parameter(fmt::format("p{}", i), value));
      cursor += sizes[i];
    }
  }
  std::vector<torch::Tensor> weights;
};

co2::Options options_of(const Json& item) {
  co2::Options options;
  options.wire = co2::Wire::kPlain;  // a case that says nothing about it
  options.strategy = co2::strategy_from_name(item.at("strategy").get<std::string>());
  for (const auto& [key, value] : item.at("options").items()) {
    if (key == "local_steps")
      options.local_steps = value;
    else if (key == "fragments")
      options.fragments = value.get<int>();
    else if (key == "delay")
      options.delay = value.get<int>();
    else if (key == "outer_rate")
      options.outer_rate = value.get<double>();
    else if (key == "momentum")
      options.momentum = value.get<double>();
    else if (key == "nesterov")
      options.nesterov = value.get<bool>();
    else if (key == "penalty")
      options.penalty = value.get<bool>();
    else if (key == "clip")
      options.clip = value.get<double>();
    else if (key == "clip_mode")
      options.clip_mode = co2::clip_mode_from_name(value.get<std::string>());
    else if (key == "restart")
      options.restart = co2::restart_from_name(value.get<std::string>());
    else if (key == "mix")
      options.mix = value.get<double>();
    else if (key == "wire")
      options.wire = co2::wire_from_name(value.get<std::string>());
    else if (key == "exchange_share")
      options.exchange_share = value.get<double>();
    else if (key == "max_local_steps")
      options.max_local_steps = value.get<int>();
    else if (key == "accumulation_steps")
      options.accumulation_steps = value;
    else if (key == "bucket_bytes")
      options.bucket_bytes = value;
    else
      throw co2::OptionError("unknown option in the case: " + key);
  }
  return options;
}

/// One worker of one case. Without a cluster: the optimizer on its own, no library at all.
class Run {
 public:
  Run(const Json& item, const std::string& folder, int rank) : item_(item), rank_(rank) {
    for (const auto& group : item.at("groups"))
      for (std::int64_t size : group.at("sizes")) sizes_.push_back(size);
    for (auto size : sizes_) numel_ += size;
    auto initial = read_floats(item.at("initial"), 0, numel_);
    for (auto& value : initial) value += static_cast<float>(rank);
    model_ = std::make_unique<Model>(sizes_, initial);
    curvature_ = read_floats(item.at("curvature"), 0, numel_);
    const auto name = item.at("name").get<std::string>();
    std::filesystem::create_directories(folder + "/" + name);
    output_.open(fmt::format("{}/{}/rank{}.bin", folder, name, rank), std::ios::binary);
    plan_file_ = fmt::format("{}/{}/plan.json", folder, name);
    make_optimizer();
  }

  void train(const co2::Cluster* cluster) {
    std::unique_ptr<co2::Synchronizer> sync;
    if (cluster) sync = std::make_unique<co2::Synchronizer>(*cluster, *model_, *optimizer_, options_of(item_));
    const auto pause = std::chrono::microseconds(item_.value("step_microseconds", 0));
    const int steps = item_.at("steps");
    const auto finishes = item_.at("finish_after").get<std::vector<int>>();
    for (int step = 0; step < steps; ++step) {
      set_rates(step);
      std::this_thread::sleep_for(pause);
      optimizer_->zero_grad();
      backward(step);
      if (sync)
        sync->step(item_.at("samples").at(rank_).at(step).get<double>());
      else
        optimizer_->step();
      dump(sync.get());
      if (sync) plan_.push_back({sync->pace().local_steps, sync->pace().fragments});
      if (sync && std::find(finishes.begin(), finishes.end(), step + 1) != finishes.end()) {
        sync->finish();
        dump(sync.get());
      }
    }
    output_.close();
    if (rank_ == 0) std::ofstream(plan_file_) << Json(plan_);
    if (!output_) throw co2::DataError("could not write the snapshots of " + item_.at("name").get<std::string>());
  }

 private:
  void make_optimizer() {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    std::size_t next = 0;
    for (const auto& group : item_.at("groups")) {
      std::vector<torch::Tensor> parameters;
      for (std::size_t i = 0; i < group.at("sizes").size(); ++i) parameters.push_back(model_->weights.at(next++));
      auto options = std::make_unique<torch::optim::SGDOptions>(group.at("rates").at(0).get<double>());
      options->momentum(group.value("momentum", 0.0)).weight_decay(group.value("weight_decay", 0.0));
      groups.emplace_back(std::move(parameters), std::move(options));
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(std::move(groups), torch::optim::SGDOptions(0.1));
  }

  void set_rates(int step) {
    const double factor = item_.contains("rate_factors") ? item_.at("rate_factors").at(rank_).get<double>() : 1.0;
    for (std::size_t g = 0; g < optimizer_->param_groups().size(); ++g) {
      const double rate = item_.at("groups").at(g).at("rates").at(step).get<double>();
      optimizer_->param_groups()[g].options().set_lr(factor * rate);
    }
  }

  /// A real backward pass, so that the library's hooks run; d/dp sum(p * g) is g, exactly.
  void backward(int step) {
    const std::int64_t target_steps = item_.at("target_steps");
    auto targets = read_floats(item_.at("targets"), (rank_ * target_steps + step) * numel_, numel_);
    const auto skipped = item_.value("without_gradient", std::vector<std::size_t>{});
    const int passes = item_.at("options").value("accumulation_steps", 1);
    const double scale = item_.contains("gradient_scales") ? item_.at("gradient_scales").at(step).get<double>() : 1.0;
    for (int pass = 0; pass < passes; ++pass) {
      torch::Tensor loss = torch::zeros({});
      std::int64_t cursor = 0;
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        auto a = torch::from_blob(curvature_.data() + cursor, {sizes_[i]});
        auto b = torch::from_blob(targets.data() + cursor, {sizes_[i]});
        cursor += sizes_[i];
        if (std::find(skipped.begin(), skipped.end(), i) != skipped.end()) continue;
        const auto& p = model_->weights[i];
        auto gradient = [&] {
          torch::NoGradGuard guard;
          return scale * (a * p - b) / passes;
        }();
        loss = loss + (p * gradient).sum();
      }
      loss.backward();
    }
  }

  void dump(const co2::Synchronizer* sync) {
    if (sync) {
      write(sync->live());
      write(sync->consensus());
    } else {
      for (const auto& p : model_->weights) write(p.detach());
    }
  }

  void write(const torch::Tensor& tensor) {
    auto values = tensor.contiguous();
    if (values.scalar_type() != torch::kFloat32) throw co2::DataError("expected float32");
    output_.write(static_cast<const char*>(values.data_ptr()), values.numel() * 4);
  }

  const Json& item_;
  const int rank_;
  std::vector<std::int64_t> sizes_;
  std::int64_t numel_ = 0;
  std::unique_ptr<Model> model_;
  std::vector<float> curvature_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::ofstream output_;
  std::vector<std::array<int, 2>> plan_;  // τ and P in force after each step
  std::string plan_file_;
};

/// Says which case failed, and ends the process: the other workers may be waiting for this one.
template <typename Body>
void or_die(const Json& item, int rank, Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    std::cerr << fmt::format("case {} worker {}: {}\n", item.at("name").get<std::string>(), rank, error.what());
    std::cerr.flush();
    std::_Exit(1);
  }
}

void replay_in_process(const Json& item, const std::string& folder) {
  // Collectives take as long as the case says, in turns: that makes an automatic τ change.
  const auto delays = item.value("wire_microseconds", std::vector<int>{});
  std::atomic<std::size_t> carried{0};
  const auto wire = [&] {
    const std::size_t turn = carried++ / item.value("wire_turn", std::size_t{1});
    std::this_thread::sleep_for(std::chrono::microseconds(delays[turn % delays.size()]));
  };
  const auto clusters =
      co2::Cluster::in_process(item.at("workers").get<int>(), delays.empty() ? std::function<void()>() : wire);
  std::vector<std::jthread> threads;
  for (const auto& cluster : clusters) {
    threads.emplace_back([&item, &folder, &cluster] {
      or_die(item, cluster.rank(), [&] { Run(item, folder, cluster.rank()).train(&cluster); });
    });
  }
}

void replay(const Json& batch, const std::string& folder) {
  const auto backend = batch.at("backend").get<std::string>();
  if (backend == "environment") {
    co2::ClusterOptions limits;
    limits.rendezvous_timeout = limits.collective_timeout = std::chrono::seconds(60);
    const auto cluster = co2::Cluster::from_environment(limits);
    for (const auto& item : batch.at("cases"))
      or_die(item, cluster.rank(), [&] { Run(item, folder, cluster.rank()).train(&cluster); });
    return;
  }
  if (backend != "in-process" && backend != "plain") throw co2::OptionError("unknown backend: " + backend);
  for (const auto& item : batch.at("cases")) {
    if (backend == "plain")
      or_die(item, 0, [&] { Run(item, folder, 0).train(nullptr); });
    else
      or_die(item, -1, [&] { replay_in_process(item, folder); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: oracle_replay BATCH.json OUTPUT_FOLDER\n";
    return 2;
  }
  at::set_num_threads(1);  // workers are threads or processes of one machine
  try {
    std::ifstream file(argv[1]);
    replay(Json::parse(file), argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
