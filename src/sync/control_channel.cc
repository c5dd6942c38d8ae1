#include "sync/control_channel.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "comm/transfer.h"
#include "sync/visiting.h"

namespace co2 {

ControlChannel::ControlChannel(std::shared_ptr<Communicator> communicator, int period, int width)
    : communicator_(std::move(communicator)),
      period_(period),
      collected_(static_cast<std::size_t>(width), 0.0),
      payload_(at::zeros({width}, at::kDouble)) {
  TORCH_CHECK(period >= 1 && width >= 1, "ControlChannel(period ", period, ", width ", width, ")");
}

ControlChannel::~ControlChannel() { wait_out({work_}); }

std::optional<std::vector<double>> ControlChannel::step(const std::vector<double>& mine) {
  TORCH_CHECK(mine.size() == collected_.size(), "ControlChannel has ", collected_.size(), " numbers, got ",
              mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i) collected_[i] += mine[i];
  if (++steps_ % period_ != 0) return std::nullopt;
  auto sums = drain();
  given_ = collected_;
  std::fill(collected_.begin(), collected_.end(), 0.0);
  launch();
  return sums;
}

void ControlChannel::launch() {
  std::copy(given_.begin(), given_.end(), payload_.data_ptr<double>());
  work_ = communicator_->all_reduce(payload_, ReduceOp::kSum);
}

void ControlChannel::visit(StateVisitor& visitor, const std::string& name, int wishes) {
  bool in_flight = work_ != nullptr;
  co2::visit(visitor, name + "/in_flight", in_flight);
  visit_counter(visitor, name + "/steps", steps_);
  given_.resize(collected_.size());
  visit_as_tensor(visitor, name + "/collected", collected_);
  visit_as_tensor(visitor, name + "/given", given_);
  if (!visitor.reads()) return;
  std::fill(collected_.end() - wishes, collected_.end(), 0.0);
  std::fill(given_.end() - wishes, given_.end(), 0.0);
  drain();
  if (in_flight) launch();
}

std::optional<std::vector<double>> ControlChannel::drain() {
  if (!work_) return std::nullopt;
  const WorkPtr work = std::move(work_);
  work_ = nullptr;
  work->wait();
  const double* values = payload_.data_ptr<double>();
  return std::vector<double>(values, values + payload_.numel());
}

}  // namespace co2
