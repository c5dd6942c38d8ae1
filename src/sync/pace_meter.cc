#include "sync/pace_meter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "comm/timed_all_reduce.h"
#include "comm/transfer.h"
#include "sync/visiting.h"

namespace co2 {

namespace {

constexpr double kProbeBytes = 2 << 20;  // beyond what a traffic shaper lets pass at once
constexpr int kProbes = 5;
constexpr double kProbeSeconds = 0.3;

double seconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

PaceMeter::PaceMeter(std::shared_ptr<Communicator> data, std::shared_ptr<Communicator> control, const at::Tensor& model,
                     std::vector<WireChoice> wires, std::function<double()> background)
    : data_(std::move(data)),
      control_(std::move(control)),
      elements_(model.numel()),
      options_(model.options()),
      wires_(std::move(wires)),
      background_(std::move(background)),
      payload_(at::zeros({3}, at::kDouble)) {}

PaceMeter::~PaceMeter() { wait_out({work_}); }

void PaceMeter::probe() {
  const at::Tensor nothing = at::zeros({1}, options_);
  latency_ = timed_all_reduce(*data_, *control_, nothing);
  for (int i = 0; i < 4; ++i) latency_ = std::min(latency_, timed_all_reduce(*data_, *control_, nothing));
  // With islands there are several groups that exchange, and all workers must make the same plan.
  latency_ = highest(*control_, latency_);

  const double model_bytes = static_cast<double>(elements_) * wires_.front().element_bytes;
  const auto chunk_elements =
      static_cast<std::int64_t>(std::min(model_bytes, kProbeBytes) / static_cast<double>(options_.dtype().itemsize()));
  const at::Tensor chunk = at::zeros({chunk_elements}, options_);
  timed_all_reduce(*data_, *control_, chunk);  // connections that have been idle start slowly
  // What a few milliseconds cost is scaled up to the whole model: the least of several, because all that disturbs adds.
  double elapsed = 0;
  double transfer = std::numeric_limits<double>::infinity();
  double cost = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kProbes && elapsed < kProbeSeconds; ++i) {
    const double cycles_before = cycles();
    const double took = timed_all_reduce(*data_, *control_, chunk);  // agreed, so all workers stop together
    cost = std::min(cost, cycles() - cycles_before);
    transfer = std::min(transfer, took);
    elapsed += took;
  }
  const double scale = model_bytes / std::max(static_cast<double>(chunk.nbytes()), 1.0);
  launched_ = Clock::now();
  cycles_before_ = cycles();
  probed_ = {.step = 0, .transfer = latency_ + scale * std::max(transfer - latency_, 0.0), .cost = scale * cost};
}

double PaceMeter::cycles() const { return background_ ? background_() : 0; }

void PaceMeter::add_exchange(std::int64_t elements, Wire wire, const TransferTime& on_the_wire) {
  exchanged_ += elements;
  exchanged_bytes_ += static_cast<double>(elements) * choice_of(wires_, wire).element_bytes;
  ++exchanges_;
  on_the_wire_.add(on_the_wire.begin, on_the_wire.end);
}

void PaceMeter::launch() {
  RoundTimes mine;
  // A median, because now and then a step includes an evaluation or a pause.
  const auto middle = steps_.begin() + static_cast<std::ptrdiff_t>(steps_.size() / 2);
  std::nth_element(steps_.begin(), middle, steps_.end());
  mine.step = steps_.empty() ? 0 : *middle;

  const Clock::time_point now = Clock::now();
  const double elapsed = seconds(std::exchange(launched_, now), now);
  const double transfer = on_the_wire_.seconds();
  const double cycles_now = cycles();
  const double cycles_used = cycles_now - std::exchange(cycles_before_, cycles_now);
  if (probed_) {
    mine.transfer = probed_->transfer;
    mine.cost = probed_->cost;
    probed_.reset();
    idle_ = elapsed > 0 ? cycles_used / elapsed : 0;  // nothing was exchanged yet
  } else if (exchanged_ > 0) {
    const double scale = static_cast<double>(elements_) / static_cast<double>(exchanged_);
    // As if all had been of the first form: it is only bytes that differ.
    const double bytes = static_cast<double>(exchanged_) * wires_.front().element_bytes;
    mine.transfer = scale * with_other_bytes(transfer - transfer_before_, static_cast<double>(exchanges_) * latency_,
                                             bytes / exchanged_bytes_);
    // What the threads take in any case is not the exchange's: counted, it would make long rounds look costly.
    mine.cost = scale * (outer_ + std::max(cycles_used - idle_ * elapsed, 0.0));
  }
  transfer_before_ = transfer;
  outer_ = 0;
  exchanged_ = 0;
  exchanged_bytes_ = 0;
  exchanges_ = 0;
  steps_.clear();

  // The transfer as the last one to join saw it: for the others it includes waiting for that one.
  const std::array<double, 3> values{mine.step, -mine.transfer, mine.cost};
  std::copy(values.begin(), values.end(), payload_.data_ptr<double>());
  work_ = control_->all_reduce(payload_, ReduceOp::kMax);
  under_way_ = true;
}

std::optional<RoundTimes> PaceMeter::agreed() {
  if (!std::exchange(under_way_, false)) return std::nullopt;
  if (const WorkPtr work = std::exchange(work_, nullptr)) work->wait();
  later_.show();
  const double* values = payload_.data_ptr<double>();
  return RoundTimes{.step = values[0], .transfer = -values[1], .cost = values[2]};
}

void PaceMeter::settle() {
  if (work_) work_->wait();
  later_.show();
}

void PaceMeter::visit(Walk& walk, const std::string& name) {
  StateVisitor& visitor = walk.visitor();
  co2::visit(visitor, name + "/under_way", under_way_);
  walk.arriving({work_}, -1, later_, [=, this](StateVisitor& to) { to.tensor(name + "/agreed", payload_); });
  visit_amount(visitor, name + "/latency", latency_);
  visit_amount(visitor, name + "/idle", idle_);
  bool probed = probed_.has_value();
  co2::visit(visitor, name + "/probed", probed);
  if (walk.reads()) {
    work_ = nullptr;
    probed_.reset();
    if (probed) probed_.emplace();
  }
  if (probed_) {
    visit_amount(visitor, name + "/probed/transfer", probed_->transfer);
    visit_amount(visitor, name + "/probed/cost", probed_->cost);
  }
  constexpr std::size_t kMost = 1 << 20;  // steps of a round
  co2::visit(visitor, name + "/steps", steps_, kMost);
  if (!walk.reads()) return;
  exchanged_ = 0;
  exchanged_bytes_ = 0;
  exchanges_ = 0;
  launched_ = Clock::now();
  transfer_before_ = on_the_wire_.seconds();
  outer_ = 0;
  cycles_before_ = cycles();
}

}  // namespace co2
