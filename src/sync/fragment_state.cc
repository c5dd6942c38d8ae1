// What a fragment remembers, and what it has in flight, as state: see docs/checkpoints.md.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "sync/fragment.h"
#include "sync/visiting.h"

namespace co2 {

void Fragment::settle() {
  for (InFlight& exchange : in_flight_) {
    for (const WorkPtr& work : exchange.message.works) wait_in_round(*work, exchange.launch.round);
    if (exchange.header_work) wait_in_round(*exchange.header_work, exchange.launch.round);
    exchange.later.show();
  }
}

void Fragment::show_what_arrives() {
  const bool awaited =
      std::any_of(in_flight_.begin(), in_flight_.end(), [](const InFlight& e) { return !e.later.empty(); });
  if (awaited) settle();
}

void Fragment::visit(Walk& walk, const std::string& name, bool with_rest) {
  StateVisitor& visitor = walk.visitor();
  if (walk.reads()) momentum_was_set();
  since_launch_.visit(visitor, name + "/since_launch", context_.last_rates.size());
  usual_.visit(visitor, name + "/usual");
  known_.visit(visitor, name + "/known", parameter_count());
  trained_here_.visit(visitor, name + "/trained_here", parameter_count());
  visit_counter(visitor, name + "/launches", launches_);
  co2::visit(visitor, name + "/left_out", left_out_);
  residues_.resize(visit_count(visitor, name + "/residues", residues_.size(), context_.last_rates.size()));
  for (std::size_t g = 0; g < residues_.size(); ++g) {
    visit_amount(visitor, fmt::format("{}/residues/{}/norm", name, g), residues_[g].norm);
    visit_amount(visitor, fmt::format("{}/residues/{}/size", name, g), residues_[g].size);
  }
  if (eager_) {
    visitor.tensor(name + "/ahead", eager_->ahead());
    visitor.tensor(name + "/own_momentum", eager_->momentum());
  }
  constexpr std::size_t kMost = 1 << 20;  // a round may be delayed by as many steps
  const std::size_t count = visit_count(visitor, name + "/in_flight", in_flight_.size(), kMost);
  if (walk.reads()) {
    for (InFlight& exchange : in_flight_) {
      wait_out(exchange.message.works);
      wait_out({exchange.header_work});
      pool_->give_back(std::move(exchange.message));
    }
    in_flight_.clear();
    in_flight_.resize(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    InFlight& exchange = in_flight_[i];
    const std::string prefix = fmt::format("{}/in_flight/{}", name, i);
    if (walk.reads()) {  // it is as if the sum had arrived here
      exchange.message = pool_->take();
      exchange.message.bytes = 0;
    }
    visit_counter(visitor, prefix + "/round", exchange.launch.round);
    visit_counter(visitor, prefix + "/apply_step", exchange.launch.apply_step);
    visit_amount(visitor, prefix + "/momentum", exchange.launch.momentum);
    visit_wire(visitor, prefix + "/wire", exchange.launch.wire);
    visit_amount(visitor, prefix + "/steps", exchange.steps);
    visit_amount(visitor, prefix + "/moved", exchange.moved);
    if (exchange.launch.momentum >= 1) refuse_damaged(prefix + "/momentum", exchange.launch.momentum);
    if (walk.reads()) {
      const std::size_t trained = exchange.launch.momentum > 0 ? parameter_count() : 0;
      exchange.header = to_sum({.sent_sizes = std::vector<double>(sizes_told(exchange.launch)),
                                .rates = std::vector<double>(rates_told()),
                                .trained = std::vector<double>(trained)});
    }
    bool may_be_burst = exchange.left.defined();
    co2::visit(visitor, prefix + "/may_be_burst", may_be_burst);
    if (walk.reads() && may_be_burst) exchange.left = at::empty_like(consensus_);
    if (may_be_burst) visitor.tensor(prefix + "/left", exchange.left);
    context_.wire.visit_sent(visitor, prefix + "/sent", exchange.message, stretches());
    std::vector<WorkPtr> works = exchange.message.works;
    works.push_back(exchange.header_work);
    const bool and_rest = with_rest && i + 1 == count;
    walk.arriving(works, exchange.launch.round, exchange.later, [=, this, &exchange](StateVisitor& to) {
      to.tensor(prefix + "/header", exchange.header);
      context_.wire.visit_sum(to, prefix + "/sum", exchange.message);
      if (and_rest) context_.visit_rest(to, where_);
    });
  }
  if (with_rest && count == 0) context_.visit_rest(visitor, where_);
}

void Fragment::abandon() noexcept {
  for (const InFlight& exchange : in_flight_) {
    wait_out(exchange.message.works);
    wait_out({exchange.header_work});
  }
  in_flight_.clear();
}

}  // namespace co2
