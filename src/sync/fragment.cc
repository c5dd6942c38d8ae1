#include "sync/fragment.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "comm/transfer.h"
#include "outer/outer_pass.h"

namespace co2 {

namespace {
std::int64_t buffer_bytes(const Message& message) { return bytes_of(message.payload) + bytes_of(message.sent); }
}  // namespace

Message MessagePool::take() {
  if (!free_.empty()) {
    Message message = std::move(free_.back());
    free_.pop_back();
    return message;
  }
  Message message = wire_.allocate(numel_, with_sent_);
  bytes_.add(buffer_bytes(message));
  return message;
}

void MessagePool::give_back(Message message) {
  message.works.clear();
  free_.push_back(std::move(message));
}

void MessagePool::release() {
  for (const Message& message : free_) bytes_.remove(buffer_bytes(message));
  free_.clear();
}

Fragment::Fragment(int index, const Recipe& recipe, const Range& where, const at::Tensor& consensus,
                   const at::Tensor& momentum, std::vector<Part> parts, std::function<double(double)> island_sum)
    : index_(index),
      recipe_(recipe),
      where_(where),
      consensus_(consensus.narrow(0, where.begin, where.size())),
      momentum_(momentum.narrow(0, where.begin, where.size())),
      parts_(std::move(parts)),
      island_sum_(std::move(island_sum)) {}

void Fragment::launch(const WireFormat& wire, MessagePool& pool, const std::vector<double>& rates,
                      std::int64_t apply_step, std::int64_t round) {
  InFlight exchange;
  exchange.message = pool.take();
  exchange.rates = rates;
  exchange.apply_step = apply_step;
  exchange.round = round;
  std::vector<WireFormat::Progress> progress;
  for (const Part& part : parts_) {
    progress.push_back({part.range, consensus_.narrow(0, part.range.begin, part.range.size()), part.live});
  }
  wire.start(exchange.message, progress, weight_);
  weight_ = 0;
  // In the paper's first round there is nothing to apply yet: x_1 = x_0, and the worker restarts from there. Without it
  // the progress that has just been launched would be measured, and sent, once more.
  if (recipe_.restart == Restart::kPaper && recipe_.delay != 0 && in_flight_.empty()) {
    for (const auto& [range, consensus, live] : progress) live.copy_(consensus);
  }
  in_flight_.push_back(std::move(exchange));
}

// Λ = 1 + ‖x_now - x_then‖ / ‖D‖, never below 1; D = sum / total_weight.
double Fragment::staleness_gap(const InFlight& exchange, const WireFormat::Sum& sum) const {
  if (!recipe_.penalty || exchange.moved == 0 || sum.total_weight == 0) return 1;
  const double progress = std::sqrt(island_sum_(outer::squared_norm(sum.values))) / sum.total_weight;
  return progress > 0 ? 1 + exchange.moved / progress : 1;
}

// The factor that brings the next momentum's norm down to φ.
double Fragment::momentum_scale(const InFlight& exchange, const WireFormat::Sum& sum, double gap) const {
  if (recipe_.clip == 0 || recipe_.clip_mode != ClipMode::kNorm || sum.total_weight == 0) return 1;
  double squared = 0;
  for (const Part& part : parts_) {
    const double rate = recipe_.rate_units ? exchange.rates[part.group] : 1;
    outer::Move move;
    move.momentum = recipe_.momentum;
    move.progress_scale = 1 / (sum.total_weight * gap * rate);
    squared += outer::next_momentum_squared_norm(sum.values.narrow(0, part.range.begin, part.range.size()),
                                                 momentum_.narrow(0, part.range.begin, part.range.size()), move);
  }
  const double norm = std::sqrt(island_sum_(squared));
  return norm > recipe_.clip ? recipe_.clip / norm : 1;
}

TransferTime Fragment::apply(const WireFormat& wire, MessagePool& pool, const std::vector<double>& rates, Trace& trace,
                             bool finishing) {
  InFlight& oldest = in_flight_.front();
  // Nothing has been changed if this throws.
  const TransferTime on_the_wire =
      wait_for_transfer(oldest.message.works, oldest.message.bytes, oldest.round, index_, trace);

  const Clock::time_point begin = Clock::now();
  const WireFormat::Sum sum = wire.sum(oldest.message);
  const double gap = staleness_gap(oldest, sum);

  outer::Move move;
  move.momentum = recipe_.momentum;
  move.momentum_scale = momentum_scale(oldest, sum, gap);
  move.clip = recipe_.clip_mode == ClipMode::kValue ? recipe_.clip : 0;
  move.nesterov = recipe_.nesterov;
  move.restart = recipe_.restart;
  move.mix = recipe_.mix;
  at::Tensor sent = oldest.message.sent;
  if (finishing && move.restart == Restart::kPaper) {
    // The live parameters restarted when this progress was launched, and have moved on since. Keeping those steps is
    // the `keep` rule with nothing of them sent.
    move.restart = Restart::kKeep;
    sent = at::zeros_like(consensus_);
  }

  // The consensus moves under the feet of an exchange that was launched before this apply.
  const bool want_norm = recipe_.penalty && in_flight_.size() > 1;
  double squared_move = 0;
  for (const Part& part : parts_) {
    const double rate_then = recipe_.rate_units ? oldest.rates[part.group] : 1;
    const double rate_now = recipe_.rate_units ? rates[part.group] : 1;
    move.progress_scale = sum.total_weight > 0 ? 1 / (sum.total_weight * gap * rate_then) : 0;
    move.rate = recipe_.outer_rate * rate_now;
    const auto cut = [&](const at::Tensor& t) { return t.narrow(0, part.range.begin, part.range.size()); };
    squared_move += outer::apply(cut(sum.values), cut(momentum_), cut(consensus_), sent.defined() ? cut(sent) : sent,
                                 part.live, move, want_norm);
  }
  const std::int64_t round = oldest.round;
  pool.give_back(std::move(oldest.message));
  in_flight_.pop_front();  // before anything that may throw: it must not be applied again
  if (want_norm) squared_move = island_sum_(squared_move);
  for (InFlight& younger : in_flight_) younger.moved = std::sqrt(squared_move);
  trace.record({SpanKind::kOuter, begin, Clock::now(), round, index_, 0});
  return on_the_wire;
}

void Fragment::abandon() noexcept {
  for (const InFlight& exchange : in_flight_) wait_out(exchange.message.works);
  in_flight_.clear();
}

}  // namespace co2
