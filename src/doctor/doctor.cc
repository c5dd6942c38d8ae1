#include "doctor/doctor.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cluster/environment.h"
#include "cluster/group.h"
#include "doctor/interface.h"
#include "doctor/machine.h"
#include "doctor/network_meter.h"
#include "doctor/product.h"
#include "doctor/reach.h"
#include "doctor/report.h"
#include "doctor/step_meter.h"
#include "island/memory_plan.h"
#include "options/recipe.h"
#include "outer/wire_dtype.h"
#include "train/option.h"
#include "train/task_type.h"

namespace co2::doctor {

namespace {

constexpr int kFailed = 3;

class Doctor {
 public:
  Doctor(const train::TrainConfig& config, const Cluster& cluster, const std::string& version, bool json)
      : config_(config), cluster_(cluster), json_(json), mine_(look_around(cluster.rank(), version)) {
    const train::TaskType& type = train::task_type(config.task);
    const train::TrainConfig settled = train::settled(config);
    report_.task = config.task;
    report_.model = settled.model;
    report_.parameters = type.shape(settled).elements();
    report_.batch = config.batch;
    report_.unit = type.words.unit;
    report_.units_per_sample = type.units_per_sample(settled);
    for (const train::TrainOption& option : type.options()) {
      if (!option.shapes_model) continue;
      report_.shape.emplace_back(option.key(), option.get(settled));
      sizes_.push_back("--" + option.flag);
    }
    report_.recipe = resolve(config.sync);
  }

  int run() {
    if (cluster_.size() > 1 && !ports_are_open()) return kFailed;
    say("comparing the workers");
    group_ = std::make_unique<Group>(cluster_.communicator("doctor"));
    check_same_options();
    report_.workers = gather();
    report_.checks = {check_room(report_.workers, least_memory(report_.parameters))};
    if (any_failed(report_.checks)) {
      tell();
      group_->barrier();
      return kFailed;
    }
    measure();
    tell();
    group_->barrier();
    return any_failed(report_.checks) ? kFailed : 0;
  }

 private:
  bool first() const { return cluster_.rank() == 0; }

  void say(const std::string& line) const {
    if (first()) fmt::print(stderr, "co2 doctor: {}\n", line);
  }

  void tell() const {
    if (!first()) return;
    fmt::print("{}", json_ ? in_json(report_) : in_text(report_));
    std::fflush(stdout);
  }

  std::vector<WorkerFacts> gather() {
    std::vector<WorkerFacts> workers;
    for (const std::string& text : group_->gather(to_text(mine_))) workers.push_back(facts_from_text(text));
    return workers;
  }

  /// Before Gloo connects everybody with everybody: it would say less about who can't.
  bool ports_are_open() {
    say(fmt::format("can every one of {} workers reach every other?", cluster_.size()));
    const Rendezvous rendezvous = read_placement(config_.cluster).rendezvous;
    mine_.interface = own_interface(rendezvous);
    Reach reach(rendezvous, mine_.interface.address);
    unreachable_ = reach.check();
    if (unreachable_.empty()) return true;
    for (const std::string& text : reach.exchange(to_text(mine_))) {
      report_.workers.push_back(facts_from_text(text));
    }
    report_.checks = {check_ports(report_.workers, unreachable_)};
    tell();
    reach.leave();
    return false;
  }

  /// Workers with other models would wait for each other in vain.
  void check_same_options() {
    std::string mine = fmt::format("task {}, model {}, batch {}", report_.task, report_.model, report_.batch);
    for (const auto& [key, value] : report_.shape) mine += fmt::format(", {} {}", key, value.dump());
    mine += fmt::format(", wire {}, max-local-steps {}", name(report_.recipe.wire), report_.recipe.max_local_steps);
    const auto all = group_->gather(mine);
    const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != all[0]; });
    if (other == all.end()) return;
    throw ClusterError(fmt::format("rank {} was started with other options ({}) than rank 0 ({}): give all the same",
                                   other - all.begin(), *other, all[0]));
  }

  void measure() {
    say("how fast are matrix products?");
    const Product product = measure_product();
    mine_.product_flops = product.flops;
    mine_.multiply_add_flops = product.multiply_add_flops;
    say("how long does a step take?");
    const Computation computation = measure_steps(config_, cluster_.rank(), cluster_.size(), *group_);
    mine_.step = computation.step;
    mine_.outer_seconds = computation.outer_seconds;
    mine_.peak_bytes = computation.peak_bytes;

    Measurements m;
    if (cluster_.size() > 1) {
      say("how fast is the network?");
      const auto data = cluster_.communicator("data", Carries::kTensors);
      m.network = measure_network(*data, computation.parameters, report_.recipe.wire);
      m.network.clocks = measure_clocks(*data);
    }
    report_.workers = gather();
    report_.parameters = computation.parameters;
    m.situation = situation(m.network, computation);
    conclude(std::move(m));
  }

  Situation situation(const NetworkFacts& network, const Computation& computation) const {
    Situation s;
    s.workers = cluster_.size();
    s.units_per_step = static_cast<double>(computation.units_per_step);
    for (const WorkerFacts& worker : report_.workers) {
      s.step = std::max(s.step, worker.step.median);
      s.outer = std::max(s.outer, worker.outer_seconds);
    }
    s.transfer = network.model_seconds;
    const double plain = 4.0 / static_cast<double>(wire_element_bytes(report_.recipe.wire, at::kFloat));
    s.plain_transfer = network.latency + plain * std::max(network.model_seconds - network.latency, 0.0);
    // As for an automatic τ: threads that fill the cores leave none for the network.
    s.cycles = core_to_spare(report_.workers) ? 0 : network.model_cycles;
    s.plain_cycles = plain * s.cycles;
    s.latency = network.latency;
    s.wire_bytes = network.model_wire_bytes;
    return s;
  }

  void conclude(Measurements m) {
    const Recipe& recipe = report_.recipe;
    Plan plan{recipe.local_steps, recipe.fragments, recipe.wire};
    if (cluster_.size() > 1) {
      m.recommendation = recommend(m.situation, recipe);
      m.recommendation_text = in_words(*m.recommendation, m.situation, recipe);
      m.expectations = expect(m.situation, m.recommendation->plan, config_.sync.wire);
      plan = m.recommendation->plan;
    }
    double peak = 0;
    for (const WorkerFacts& worker : report_.workers) peak = std::max(peak, worker.peak_bytes);
    m.memory = memory_need(report_.parameters, plan, cluster_.size(), peak);
    const auto& workers = report_.workers;
    report_.checks = {check_threads(workers),
                      check_cores(workers),
                      check_blas(workers),
                      check_memory(workers, m.memory.total(), sizes_),
                      check_ports(workers, unreachable_),
                      check_interface(workers, m.network),
                      check_clocks(workers, m.network.clocks),
                      check_versions(workers),
                      check_speed(workers)};
    report_.measurements = std::move(m);
  }

  const train::TrainConfig& config_;
  const Cluster& cluster_;
  const bool json_;
  WorkerFacts mine_;
  std::vector<std::string> sizes_;  // flags of the task that decide how much a worker holds
  std::unique_ptr<Group> group_;
  std::vector<Unreachable> unreachable_;
  Report report_;
};

}  // namespace

int run_doctor(const train::TrainConfig& config, const Cluster& cluster, const std::string& version, bool json) {
  return Doctor(config, cluster, version, json).run();
}

}  // namespace co2::doctor
