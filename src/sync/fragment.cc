#include "sync/fragment.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "comm/transfer.h"
#include "flat/cut.h"
#include "options/wires.h"
#include "outer/outer_pass.h"

namespace co2 {

Fragment::Fragment(int index, ExchangeContext& context, std::shared_ptr<MessagePool> pool, const Range& where,
                   const at::Tensor& consensus, const at::Tensor& momentum, std::vector<Part> parts)
    : index_(index),
      context_(context),
      recipe_(context.recipe),
      pool_(std::move(pool)),
      where_(where),
      consensus_(cut(consensus, where)),
      momentum_(cut(momentum, where)),
      parts_(std::move(parts)) {
  if (!recipe_.eager) return;
  std::vector<at::Tensor> live;
  for (const Part& part : parts_) live.push_back(part.live);
  eager_.emplace(recipe_, std::move(live), context.control.size());
}

template <typename Body>
void Fragment::for_each_parameter_of(const Part& part, const Body& body) {
  for (std::size_t i = 0; i < part.parameters.size(); ++i) {
    const std::int64_t end = i + 1 < part.parameters.size() ? part.parameters[i + 1] : part.range.end;
    body(Range{part.parameters[i], end});
  }
}

template <typename Body>
void Fragment::for_each_parameter(const Body& body) const {
  for (const Part& part : parts_) {
    for_each_parameter_of(part, [&](const Range& where) { body(part, where); });
  }
}

/// Who looks for what inner steps have changed must not take this for it.
template <typename Change>
void Fragment::change_live(const Change& change) {
  if (trained_here_.looks()) trained_here_.look(live_parameters());
  change();
  if (trained_here_.looks()) trained_here_.overlook(live_parameters());
}

void Fragment::go_ahead() {
  change_live([&] { eager_->go_ahead(); });
}

void Fragment::inherit(const Fragment& old, double share) {
  since_launch_.add(old.since_launch_, share);
  usual_.include(old.usual_);
  if (old.known_.looks()) {
    const std::vector<Range> mine = parameters_in_shard();
    const std::vector<Range> its = old.parameters_in_shard();
    known_.resize(mine.size());
    for (std::size_t i = 0, j = 0; i < mine.size() && j < its.size();) {
      if (std::min(mine[i].end, its[j].end) > std::max(mine[i].begin, its[j].begin)) known_.include(i, old.known_, j);
      if (mine[i].end < its[j].end) {
        ++i;
      } else {
        ++j;
      }
    }
  }
  if (!old.momentum_rests_) momentum_rests_ = false;
  residues_.resize(std::max(residues_.size(), old.residues_.size()));
  const double of_old = share * static_cast<double>(numel()) / static_cast<double>(old.numel());
  for (std::size_t g = 0; g < old.residues_.size(); ++g) residues_[g].include(old.residues_[g], of_old);
}

void Fragment::forget_progress() {
  since_launch_ = {};
  residues_.clear();
  trained_here_.overlook(live_parameters());
  trained_here_.restart();
}

void Fragment::launch(const Launch& launch) {
  show_what_arrives();
  InFlight exchange;
  exchange.message = pool_->take();
  exchange.launch = launch;
  exchange.steps = since_launch_.steps;
  if (eager_) change_live([&] { eager_->take_back(); });
  if (launch.momentum > 0) momentum_was_set();  // by then another cut of the model may have taken over its elements

  std::vector<WireFormat::Progress> progress;
  for (const Part& part : parts_) progress.push_back({part.range, cut(consensus_, part.range), part.live});
  const WireFormat::Sent sent = context_.wire.start(
      exchange.message, progress,
      {.weight = since_launch_.samples, .wire = launch.wire, .round = launch.round, .where = where_.begin});
  left_out_ = sent.left_out;
  if (left_out_) ++context_.left_out;
  const Header header = header_of(sent, launch);
  exchange.header = to_sum(header);
  exchange.header_work = context_.control.all_reduce(exchange.header, ReduceOp::kSum);
  if (looks_for_bursts() && recipe_.restart == Restart::kKeep && recipe_.wire != Wire::kPlain &&
      usual_.is_burst(header.known_size, exchange.steps, recipe_.clip)) {
    exchange.left = what_rounding_leaves(exchange.message);
  }
  since_launch_.restart(header.weight > 0 || recipe_.restart != Restart::kKeep);
  if (eager_ && header.weight > 0) {
    std::vector<at::Tensor> consensus;
    for (const WireFormat::Progress& each : progress) consensus.push_back(each.consensus);
    // To go ahead and be taken back leaves a rounding of what that was, which is no more than the worker's own momentum.
    constexpr double kRate = 1;
    std::vector<Range> rests;
    for_each_parameter([&](const Part& part, const Range& where) {
      const at::Tensor live = cut(part.live, {where.begin - part.range.begin, where.end - part.range.begin});
      if (outer::is_rounding(cut(consensus_, where), live, cut(eager_->momentum(), where), kRate)) {
        rests.push_back(where);
      }
    });
    eager_->remember(consensus, rests);
  }
  // In the paper's first round there is nothing to apply yet: x_1 = x_0, and the worker restarts from there. Without it
  // the progress that has just been launched would be measured, and sent, once more.
  if (recipe_.restart == Restart::kPaper && recipe_.delay != 0 && in_flight_.empty()) {
    for (const auto& [range, consensus, live] : progress) live.copy_(consensus);
    trained_here_.overlook(live_parameters());
  }
  in_flight_.push_back(std::move(exchange));
}

/// What goes with the progress. Remembers what rounding has left of it.
Header Fragment::header_of(const WireFormat::Sent& sent, const Launch& launch) {
  const bool sends = since_launch_.samples > 0 && !sent.left_out;
  Header header;
  header.weight = sends ? since_launch_.samples : 0;
  header.check = consensus_check(consensus_, launches_++);
  std::vector<double> rates(context_.last_rates.size(), 1.0);
  if (recipe_.rate_units) {
    for (std::size_t g = 0; g < rates.size(); ++g) rates[g] = since_launch_.rates[g] / since_launch_.unsent_steps;
  }
  const bool keeps_rest = recipe_.restart == Restart::kKeep;  // `mix` overwrites some of it: then it counts as fresh
  residues_.resize(rates.size());
  header.sent_sizes.resize(sizes_told(launch));
  if (sends) {
    std::vector<outer::LaunchNorms> norms(rates.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) norms[parts_[i].group] += sent.norms[i];
    // Per round, also of a worker that has sent nothing for several of them.
    const double rounds = since_launch_.unsent_steps / since_launch_.steps;
    std::vector<bool> sure;
    for (std::size_t g = 0; g < rates.size(); ++g) {
      sure.push_back(residues_[g].tells_what_is_fresh(std::sqrt(norms[g].progress), rates[g], rounds));
    }
    const std::vector<double> known = known_progress(sent, sure);
    for (std::size_t g = 0; g < rates.size(); ++g) {
      Residue& residue = residues_[g];
      const double all = std::sqrt(norms[g].progress);
      const double size = residue.size_of(all, rates[g], rounds);
      const double of_sent = all > 0 ? size * std::sqrt(norms[g].sent) / all : 0;
      // All that is left may be of what is known.
      const double of_known = residue.size_of(std::sqrt(known[g]), rates[g], rounds);
      header.size += size * size;
      header.known_size += of_known * of_known;
      if (launch.momentum > 0) header.sent_sizes[g] = of_sent;
      const double left = keeps_rest ? std::sqrt(norms[g].left) : 0;
      residue = {left, all > 0 && std::isfinite(size) ? size * left / all : 0};  // a rate may be next to nothing
    }
    const auto elements = static_cast<double>(std::max<std::int64_t>(numel(), 1));
    header.size = std::sqrt(header.size / elements);
    header.known_size = std::sqrt(header.known_size / elements);
  }
  if (recipe_.rate_units) header.rates = std::move(rates);
  if (launch.momentum > 0) {
    header.trained = trained_here(sends);
  } else {
    trained_here_.forget();
  }
  return header;
}

/// Squared norm of the progress, per parameter group, in parameters of which it is known how large that usually is.
/// Remembers which ones have moved. In a group that is not `sure` of what is fresh, nothing is known.
std::vector<double> Fragment::known_progress(const WireFormat::Sent& sent, const std::vector<bool>& sure) {
  std::vector<double> squared(context_.last_rates.size());
  if (!looks_for_bursts()) return squared;
  std::vector<bool> moved;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    std::vector<Range> parameters;
    for_each_parameter_of(part, [&](const Range& where) {
      parameters.push_back({where.begin - part.range.begin, where.end - part.range.begin});
    });
    const at::Tensor consensus = cut(consensus_, part.range);
    const std::vector<bool> here = have_moved(consensus, part.live, parameters, recipe_.restart == Restart::kMix);
    // Nearly always all of them are known, or none, and the norm is there already.
    std::vector<Range> known;
    for (std::size_t k = 0; k < here.size(); ++k) {
      if (here[k] && sure[part.group] && known_.knows(moved.size() + k)) known.push_back(parameters[k]);
    }
    if (std::ssize(known) == std::count(here.begin(), here.end(), true)) {
      squared[part.group] += sent.norms[i].progress;
    } else {
      for (const Range& where : known) {
        squared[part.group] += squared_distance(cut(consensus, where), cut(part.live, where));
      }
    }
    moved.insert(moved.end(), here.begin(), here.end());
  }
  known_.sent(moved);
  std::size_t parameter = 0;
  for_each_parameter([&](const Part& part, const Range&) {
    if (!sure[part.group]) known_.forget(parameter);
    ++parameter;
  });
  return squared;
}

/// d - s of an exchange that has just been launched.
at::Tensor Fragment::what_rounding_leaves(const Message& message) const {
  at::Tensor left = consensus_.clone();
  for (const Part& part : parts_) {
    cut(left, part.range).sub_(part.live);
    for (const auto& [range, sum, sent] : context_.wire.sum(message, part.range)) {
      cut(left, range).sub_(outer::decode(sent, left.scalar_type()));
    }
  }
  return left;
}

/// A burst is cut down to b of it. What rounding has left of it, here and at the owners of blocks, would be sent later
/// on, and be most of it where there are few bits: of that, too, only b is kept.
void Fragment::drop_what_a_burst_left(const InFlight& exchange, double burst) {
  context_.wire.scale_rest(exchange.message, where_.begin, burst);
  if (!exchange.left.defined()) return;  // what this worker has sent is usual
  for (const Part& part : parts_) part.live.add_(cut(exchange.left, part.range), 1 - burst);
  for (Residue& residue : residues_) residue.scale(burst);
}

/// The sum, and how it is to be applied. Changes nothing but what it learns about usual progress.
Fragment::Arrived Fragment::arrived(const InFlight& exchange) {
  const AgreedHeader header =
      agreed(exchange.header, context_.control.size(), rates_told(), sizes_told(exchange.launch));
  require_same_consensus(header, fmt::format("the consensus of fragment {} (round {})", index_, exchange.launch.round));
  Arrived result;
  for (const Part& part : parts_) result.sum.push_back(context_.wire.sum(exchange.message, part.range));
  result.total_weight = header.total_weight;
  result.trained = header.trained;
  result.sizes = header.sent_sizes;
  // γ on both sides, so that progress arrives at the scale at which it was made: what the rate is, matters only to what
  // momentum remembers. A rate of zero has no units to speak of: the last positive one stands in for it.
  for (std::size_t g = 0; g < header.rates.size(); ++g) {
    if (header.rates[g] > 0) context_.last_rates[g] = header.rates[g];
  }
  result.rates = context_.last_rates;
  if (result.total_weight == 0) return result;
  result.scale = 1 / (result.total_weight * staleness_gap(exchange, result));
  if (looks_for_bursts()) {
    const double factor = usual_.limit({header.size, header.known_size}, exchange.steps, recipe_.clip);
    result.scale *= factor;
    result.burst = factor;
    for (double& size : result.sizes) size *= factor;
    count_clipped(1 - factor);
  }
  return result;
}

/// How much of what has arrived momentum shall remember. Some of it may be what rounding has left, at workers that keep
/// it and at owners of blocks, of a time of higher rates. It moves the consensus as it is; but in units of today's rate
/// momentum would remember a multiple of it, and make it felt when the rate rises again. The workers know how large
/// what they have sent is in units of its own time: no mean of it is larger, but for what owners add and take away.
/// Each parameter group by itself, as its rate may fall while the others' do not.
std::vector<double> Fragment::memorable_shares(const InFlight& exchange, const Arrived& arrived) const {
  std::vector<double> shares(arrived.rates.size(), 1.0);
  const Wire wire = exchange.launch.wire;
  const bool some_is_old = in_blocks(wire) || (wire == Wire::kBfloat16 && recipe_.restart == Restart::kKeep);
  if (exchange.launch.momentum == 0 || !some_is_old) return shares;
  std::vector<double> squared(shares.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t group = parts_[i].group;
    const double scale = arrived.scale / arrived.rates[group];
    for (const auto& [range, sum, sent] : arrived.sum[i]) squared[group] += scale * scale * outer::squared_norm(sum);
  }
  constexpr double kOwners = 1.5;
  for (std::size_t g = 0; g < shares.size(); ++g) {
    const double most = kOwners * arrived.sizes[g];
    const double size = std::sqrt(squared[g]);
    if (size > most) shares[g] = most / size;
  }
  return shares;
}

// Λ = 1 + ‖x_now - x_then‖ / ‖D‖, never below 1; D = sum / total_weight.
double Fragment::staleness_gap(const InFlight& exchange, const Arrived& arrived) const {
  if (!recipe_.penalty || exchange.moved == 0) return 1;
  double squared = 0;
  for (const auto& part : arrived.sum) {
    for (const auto& [range, sum, sent] : part) squared += outer::squared_norm(sum);
  }
  const double progress = std::sqrt(context_.island_sum(squared)) / arrived.total_weight;
  return progress > 0 ? 1 + exchange.moved / progress : 1;
}

// The factor that brings the next momentum's norm down to φ.
double Fragment::momentum_scale(const InFlight& exchange, const Arrived& arrived) const {
  if (recipe_.clip == 0 || recipe_.clip_mode != ClipMode::kNorm || arrived.total_weight == 0) return 1;
  double squared = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    outer::Move move;
    move.momentum = exchange.launch.momentum;
    move.progress_scale = arrived.scale / arrived.rates[parts_[i].group];
    for (const auto& [range, sum, sent] : arrived.sum[i]) {
      squared += outer::next_momentum_squared_norm(sum, cut(momentum_, range), move);
    }
  }
  const double norm = std::sqrt(context_.island_sum(squared));
  return norm > recipe_.clip ? recipe_.clip / norm : 1;
}

void Fragment::count_clipped(double share) {
  Clipping& clipping = context_.clipping;
  ++clipping.exchanges;
  if (!(share > 0)) return;
  ++clipping.clipped;
  clipping.lost += share;
}

TransferTime Fragment::apply(bool finishing) {
  Trace& trace = context_.trace;
  InFlight& oldest = in_flight_.front();
  const std::int64_t round = oldest.launch.round;
  // Nothing has been changed if one of these throws.
  const TransferTime on_the_wire = wait_for_transfer(oldest.message.works, oldest.message.bytes, round, index_, trace);
  if (oldest.header_work) {
    wait_for_transfer({oldest.header_work}, context_.control.all_reduce_wire_bytes(bytes_of(oldest.header)), round,
                      index_, trace);
  }
  oldest.later.show();
  if (trained_here_.looks()) trained_here_.look(live_parameters());

  const Clock::time_point begin = Clock::now();
  const Arrived arrived = this->arrived(oldest);
  if (finishing && eager_) change_live([&] { eager_->finish(); });
  rest_what_nobody_trains(arrived);
  outer::Move move;
  move.momentum = oldest.launch.momentum;
  move.momentum_scale = momentum_scale(oldest, arrived);
  move.clip = recipe_.clip_mode == ClipMode::kValue ? recipe_.clip : 0;
  move.nesterov = recipe_.nesterov;
  move.restart = recipe_.restart;
  move.mix = recipe_.mix;
  at::Tensor nothing;
  if (finishing && move.restart == Restart::kPaper) {
    // The live parameters restarted when this progress was launched, and have moved on since. Keeping those steps is
    // the `keep` rule with nothing of them sent.
    move.restart = Restart::kKeep;
    nothing = at::zeros_like(consensus_);
  }
  const at::Tensor momentum = momentum_for(move);
  const std::vector<double> memorable = memorable_shares(oldest, arrived);

  // The consensus moves under the feet of an exchange that was launched before this apply.
  const bool want_norm = recipe_.penalty && in_flight_.size() > 1;
  outer::ApplyNorms norms;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const double rate = arrived.rates[part.group];
    move.progress_scale = arrived.scale / rate;
    move.rate = recipe_.outer_rate * rate;
    for (const auto& [range, sum, sent] : arrived.sum[i]) {
      const Range in_part{range.begin - part.range.begin, range.end - part.range.begin};
      norms += outer::apply(sum, cut(momentum, range), cut(consensus_, range),
                            nothing.defined() ? outer::Wired(cut(nothing, range)) : sent, cut(part.live, in_part), move,
                            want_norm);
      if (const double share = memorable[part.group]; share < 1) {
        cut(momentum, range).sub_(outer::decode(sum, momentum.scalar_type()), (1 - share) * move.progress_scale);
      }
    }
  }
  if (arrived.burst < 1 && recipe_.restart == Restart::kKeep) drop_what_a_burst_left(oldest, arrived.burst);
  if (trained_here_.looks()) trained_here_.overlook(live_parameters());
  pool_->give_back(std::move(oldest.message));
  in_flight_.pop_front();  // before anything that may throw: it must not be applied again
  if (move.clip > 0) count_clipped(norms.momentum > 0 ? std::sqrt(norms.clipped / norms.momentum) : 0);
  if (recipe_.clip > 0 && recipe_.clip_mode == ClipMode::kNorm) count_clipped(1 - move.momentum_scale);
  if (want_norm) norms.move = context_.island_sum(norms.move);
  for (InFlight& younger : in_flight_) younger.moved = std::sqrt(norms.move);
  trace.record({SpanKind::kOuter, begin, Clock::now(), round, index_, 0});
  return on_the_wire;
}

/// An exchange without momentum forgets it, and need not touch it.
at::Tensor Fragment::momentum_for(const outer::Move& move) {
  if (!outer::may_go_without_momentum(move)) {
    momentum_rests_ = false;
    return momentum_;
  }
  if (momentum_.defined() && !std::exchange(momentum_rests_, true)) momentum_.zero_();
  return {};
}

std::size_t Fragment::parameter_count() const {
  std::size_t count = 0;
  for (const Part& part : parts_) count += part.parameters.size();
  return count;
}

std::vector<Range> Fragment::parameters_in_shard() const {
  std::vector<Range> ranges;
  for_each_parameter([&](const Part&, const Range& where) {
    ranges.push_back({where_.begin + where.begin, where_.begin + where.end});
  });
  return ranges;
}

std::vector<at::Tensor> Fragment::live_parameters() const {
  std::vector<at::Tensor> live;
  for_each_parameter([&](const Part& part, const Range& where) {
    live.push_back(cut(part.live, {where.begin - part.range.begin, where.end - part.range.begin}));
  });
  return live;
}

/// What it tells about them: nothing was trained, if it sends nothing. With `keep` it tells later what it keeps now.
/// Nor was what has changed by no more than rounding, at next to no rate: momentum, which is in units of the rate,
/// would remember it as something large.
std::vector<double> Fragment::trained_here(bool sends) {
  trained_here_.look(live_parameters());
  std::vector<double> trained = sends ? trained_here_.answer() : std::vector<double>(parameter_count());
  if (sends || recipe_.restart != Restart::kKeep) trained_here_.restart();
  auto each = trained.begin();
  for_each_parameter([&](const Part& part, const Range& where) {
    const Range in_part{where.begin - part.range.begin, where.end - part.range.begin};
    const double rate = context_.last_rates[part.group];
    if (*each == 1 &&
        outer::is_rounding(cut(consensus_, where), cut(part.live, in_part), cut(momentum_, where), rate)) {
      *each = 0;
    }
    ++each;
  });
  return trained;
}

/// A parameter that nobody trains, because it is frozen for a while, must not go on moving by momentum alone. What is
/// yet to be heard of it still arrives.
void Fragment::rest_what_nobody_trains(const Arrived& arrived) const {
  if (arrived.trained.empty()) return;  // there is no momentum
  auto trained = arrived.trained.begin();
  for_each_parameter([&](const Part&, const Range& where) {
    if (*trained++ == 0) cut(momentum_, where).zero_();
  });
}

std::vector<Range> Fragment::stretches() const {
  std::vector<Range> ranges;
  for (const Part& part : parts_) ranges.push_back(part.range);
  return ranges;
}

}  // namespace co2
