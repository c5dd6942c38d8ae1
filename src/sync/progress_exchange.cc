#include "sync/progress_exchange.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/thread_cpu.h"
#include "comm/transfer.h"
#include "outer/wire_dtype.h"
#include "sync/summable.h"
#include "sync/visiting.h"
#include "trace/bytes.h"

namespace co2 {

namespace {

// The first step of a program is slow, so a few are taken before the first plan is made.
constexpr std::int64_t kMeasuredSteps = 4;
constexpr std::int64_t kToldEvery = 8;  // steps, or a round if that is longer

/// Whether this worker's share of the cores is used up by its computing threads. Its share is what its launcher has
/// pinned it to, or an equal part of the machine.
bool no_core_to_spare(int workers_here) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return true;
  const auto equal_part = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) / workers_here;
  return std::min(CPU_COUNT(&mask), equal_part) <= at::get_num_threads();
}

/// Where the parameters begin that are in a stretch of the flat buffer, counted from its own beginning. What lies in
/// front of the first one is part of it, padding or the rest of a parameter that began before.
std::vector<std::int64_t> parameters_in(const FlatParameters& flat, const Range& stretch) {
  std::vector<std::int64_t> begins{0};
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const Range where = flat.where(i);
    if (where.size() > 0 && where.begin > stretch.begin && where.begin < stretch.end) {
      begins.push_back(where.begin - stretch.begin);
    }
  }
  std::sort(begins.begin(), begins.end());
  return begins;
}

}  // namespace

ProgressExchange::ProgressExchange(std::shared_ptr<Communicator> control, int workers_here, const Island& island,
                                   const FlatParameters& flat, const Shard& shard, const NamedStretches& names,
                                   at::Tensor live, std::size_t groups, const Recipe& recipe,
                                   std::unique_ptr<WireFormat> wire, Trace& trace)
    : recipe_(recipe),
      trace_(trace),
      flat_(flat),
      shard_(shard),
      names_(names),
      live_(std::move(live)),
      communicator_(island.across()),
      consensus_(shard_.copy_of(live_)),
      momentum_(at::zeros_like(consensus_)),
      wire_(std::move(wire)),
      wires_(wire_choices(recipe, consensus_.scalar_type())),
      context_{.recipe = recipe,
               .wire = *wire_,
               .control = *island.across_control(),
               .island_sum = [&island](double squared_norm) { return island.sum(squared_norm); },
               .trace = trace,
               .visit_rest =
                   [this](StateVisitor& visitor, const Range& part) {
                     const at::Tensor rest = wire_->rest();
                     if (rest.defined()) names_.visit(visitor, "rest", rest, part);
                   },
               .last_rates = std::vector<double>(groups, 1.0),
               .clipping = {},
               .left_out = 0},
      round_{.number = 0,
             .begin = 0,
             .local_steps = recipe.local_steps,
             .fragments = recipe.fragments,
             .wire = recipe.wire} {
  cut(recipe.fragments);
  if (!recipe_.adaptive || communicator_->size() == 1) return;
  // With islands the same threads carry gradients too, and nobody can tell whose cycles they are.
  const bool cycles_count = island.size() == 1 && no_core_to_spare(workers_here);
  std::function<double()> background;
  if (cycles_count) {
    background = [this] { return communicator_->background_cpu_seconds() + wire_->background_cpu_seconds(); };
  }
  meter_ = std::make_unique<PaceMeter>(communicator_, std::move(control), consensus_, wires_, std::move(background));
  meter_->probe();
}

ProgressExchange::~ProgressExchange() {
  for (Fragment& fragment : old_fragments_) fragment.abandon();
  for (Fragment& fragment : fragments_) fragment.abandon();
}

std::vector<Fragment> ProgressExchange::make_fragments(int count, const std::shared_ptr<MessagePool>& pool) {
  std::vector<Fragment> fragments;
  for (const Range& range : shard_.fragments(count)) {
    std::vector<Fragment::Part> parts;
    for (const Shard::Segment& segment : shard_.segments_of(range)) {
      const std::int64_t begin = segment.local.begin - range.begin;
      std::vector<std::int64_t> parameters = parameters_in(flat_, segment.flat);
      for (std::int64_t& parameter : parameters) parameter += begin;
      parts.push_back({{begin, segment.local.end - range.begin},
                       segment.group,
                       shard_.view(live_, segment),
                       std::move(parameters)});
    }
    fragments.emplace_back(static_cast<int>(fragments.size()), context_, pool, range, consensus_, momentum_,
                           std::move(parts));
  }
  return fragments;
}

std::shared_ptr<MessagePool> ProgressExchange::make_pool(int count) const {
  std::int64_t largest = 0;
  std::size_t stretches = 0;
  for (const Range& range : shard_.fragments(count)) {
    largest = std::max(largest, range.size());
    stretches = std::max(stretches, shard_.segments_of(range).size());
  }
  return std::make_shared<MessagePool>(*wire_, largest, stretches, recipe_.restart == Restart::kKeep);
}

void ProgressExchange::cut(int count) {
  auto pool = make_pool(count);
  std::vector<Fragment> cut_now = make_fragments(count, pool);
  // Of what was done since an element's last launch, a new fragment has the mean over its elements.
  std::int64_t begin = 0;
  for (const Fragment& old : fragments_) {
    const std::int64_t end = begin + old.numel();
    std::int64_t start = 0;
    for (Fragment& fragment : cut_now) {
      const std::int64_t common = std::min(end, start + fragment.numel()) - std::max(begin, start);
      if (common > 0) {
        fragment.inherit(old, static_cast<double>(common) / static_cast<double>(fragment.numel()));
      }
      start += fragment.numel();
    }
    begin = end;
  }
  if (pool_) most_message_bytes_ = message_bytes();
  old_fragments_ = std::exchange(fragments_, std::move(cut_now));
  old_pool_ = std::exchange(pool_, std::move(pool));
  if (old_pool_) old_pool_->release();
}

bool ProgressExchange::after_step(double samples, const std::vector<double>& rates, double compute_seconds) {
  ++steps_;
  changed_.clear();
  for (Fragment& fragment : fragments_) fragment.add_step(samples, rates);
  if (meter_) meter_->add_step(compute_seconds);
  if (measuring()) {
    measure_first_steps();
    return false;
  }
  const bool round_ends = steps_ == round_.end();
  const Round next = round_ends ? following_round() : round_;
  // What was measured for `paper` includes the steps that the apply is about to overwrite, so it must go first. With
  // the other restarts, progress that was just replaced by the average must not be sent again, so the apply goes first;
  // that also frees a buffer for the launch.
  if (recipe_.restart != Restart::kPaper) apply_what_is_due();
  launch_what_is_due(next);
  apply_what_is_due();  // blocking exchanges were launched just now
  if (recipe_.eager && round_ends) {
    for (Fragment& fragment : fragments_) fragment.go_ahead();
  }
  if (round_ends) begin(next);
  return round_ends;
}

void ProgressExchange::measure_first_steps() {
  if (steps_ == kMeasuredSteps - 1) meter_->launch();
  if (steps_ != kMeasuredSteps) return;
  const auto times = meter_->agreed();
  control_.emplace(limits(), Plan{round_.local_steps, round_.fragments, round_.wire});
  const Plan plan = control_->guess(*times);
  // The steps so far were a round without an exchange.
  begin({.number = round_.number + 1,
         .begin = steps_,
         .local_steps = plan.local_steps,
         .fragments = plan.fragments,
         .wire = plan.wire});
}

PaceLimits ProgressExchange::limits() const {
  return {.wires = wires_,
          .max_local_steps = recipe_.max_local_steps,
          .fragments = recipe_.fragments,
          .fixed_fragments = recipe_.fixed_fragments,
          .exchange_share = recipe_.exchange_share,
          .latency = meter_->latency()};
}

Round ProgressExchange::following_round() {
  Round next = round_;
  next.number = round_.number + 1;
  next.begin = steps_;
  // Every few steps, however short a round is: what was measured in one alone is noise, and telling costs a message.
  if (!meter_ || steps_ / kToldEvery == round_.begin / kToldEvery) return next;
  if (const auto times = meter_->agreed()) {
    const Plan plan = control_->next(*times);
    next.local_steps = plan.local_steps;
    next.fragments = plan.fragments;
    next.wire = plan.wire;
  }
  meter_->launch();
  return next;
}

void ProgressExchange::begin(const Round& round) {
  if (round.fragments != static_cast<int>(fragments_.size())) cut(round.fragments);
  round_ = round;
}

void ProgressExchange::launch_what_is_due(const Round& next) {
  for (int i = 0; i < round_.fragments; ++i) {
    if (round_.launch_step(i) != steps_) continue;
    for (Fragment& old : old_fragments_) old.show_what_arrives();
    const Clock::time_point begin = Clock::now();
    const double cpu_before = cpu_seconds_of_this_thread();
    const std::int64_t apply_step = recipe_.delay ? steps_ + *recipe_.delay : round_.following_launch(i, next);
    Fragment& fragment = fragments_[static_cast<std::size_t>(i)];
    fragment.launch({.round = round_.number,
                     .apply_step = apply_step,
                     .momentum = momentum_of(recipe_, round_.local_steps),
                     .wire = round_.wire});
    if (recipe_.restart == Restart::kPaper) changed_.push_back(fragment.where());
    if (meter_) meter_->add_outer(cpu_seconds_of_this_thread() - cpu_before);
    trace_.record({SpanKind::kOuter, begin, Clock::now(), round_.number, i, 0});
  }
}

// One that failed stays due, so that whoever goes on after its error meets it again, and does not train alone unawares.
void ProgressExchange::apply_what_is_due() {
  const auto due = [&](const Fragment& f) { return f.in_flight() && f.oldest_apply_step() <= steps_; };
  for (Fragment& fragment : old_fragments_) {
    if (!due(fragment)) continue;
    apply(fragment, false);
    old_pool_->release();  // nothing is launched from it any more
  }
  for (Fragment& fragment : fragments_) {
    if (due(fragment)) apply(fragment, false);
  }
}

void ProgressExchange::apply(Fragment& fragment, bool finishing) {
  const Wire wire = fragment.oldest_wire();
  const double cpu_before = cpu_seconds_of_this_thread();
  const TransferTime on_the_wire = fragment.apply(finishing);
  if (meter_) meter_->add_outer(cpu_seconds_of_this_thread() - cpu_before);
  changed_.push_back(fragment.where());
  // (One that was restored was on the wire in another life.)
  if (meter_ && on_the_wire.end > on_the_wire.begin) meter_->add_exchange(fragment.numel(), wire, on_the_wire);
}

void ProgressExchange::apply_all_in_flight() {
  const auto apply_all = [&](std::vector<Fragment>& fragments) {
    while (true) {
      Fragment* oldest = nullptr;
      for (Fragment& fragment : fragments) {
        if (!fragment.in_flight()) continue;
        if (oldest == nullptr || fragment.oldest_apply_step() < oldest->oldest_apply_step()) oldest = &fragment;
      }
      if (oldest == nullptr) return;
      apply(*oldest, /*finishing=*/true);
    }
  };
  apply_all(old_fragments_);
  apply_all(fragments_);
}

// Fragment by fragment: a copy of the whole model at once would be the peak of memory of a whole run.
void ProgressExchange::average_live_parameters() {
  for (const Fragment& fragment : fragments_) {
    const Range& range = fragment.where();
    const at::Tensor consensus = consensus_.narrow(0, range.begin, range.size());
    const at::Tensor average = shard_.copy_of(live_, range);
    // Whoever was left out of the last exchange is left out here, too, and whose parameters can't be added up.
    const bool takes_part = !fragment.keeps_what_was_left_out() &&
                            summable(outer::squared_norm(average), 1, communicator_->size(), average.scalar_type());
    const at::Tensor taking_part = at::full({1}, takes_part ? 1.0 : 0.0, at::kDouble);
    context_.control.all_reduce(taking_part, ReduceOp::kSum)->wait();
    const double workers = taking_part.item<double>();
    if (!takes_part) {
      ++context_.left_out;
      average.zero_();
    }
    if (workers > 0) {
      if (const at::Tensor rest = wire_->rest(); rest.defined()) {  // the consensus has not yet moved by it
        const at::Tensor of_range = rest.narrow(0, range.begin, range.size());
        average.sub_(of_range, workers * recipe_.outer_rate);
        of_range.zero_();
      }
      const auto works = all_reduce_in_buckets(*communicator_, average, recipe_.bucket_bytes);
      const auto bytes = communicator_->all_reduce_wire_bytes(bytes_of(average));
      wait_for_transfer(works, bytes, round_.number, -1, trace_);
      average.div_(workers);
      consensus.copy_(average);
    }
    shard_.write_to(live_, consensus, range);
  }
}

/// All of it: exchanges compare a part at a time, and this is the last chance.
void ProgressExchange::compare_consensus() const {
  Header header;
  for (std::int64_t part = 0; part < kConsensusParts; ++part) {
    header.check = static_cast<std::uint16_t>(31 * header.check + consensus_check(consensus_, part));
  }
  const at::Tensor sums = to_sum(header);
  context_.control.all_reduce(sums, ReduceOp::kSum)->wait();
  require_same_consensus(agreed(sums, context_.control.size(), 0, 0), "the consensus");
}

void ProgressExchange::finish() {
  compare_consensus();
  // Idle buffers make room for those that only finishing needs: it must not be the peak of memory of a whole run.
  pool_->release();
  apply_all_in_flight();
  pool_->release();
  average_live_parameters();
  for (Fragment& fragment : fragments_) fragment.forget_progress();
  changed_ = {{0, shard_.numel()}};
}

std::int64_t ProgressExchange::state_bytes() const {
  std::int64_t bytes = bytes_of(consensus_) + bytes_of(momentum_) + bytes_of(wire_->rest());
  for (const Fragment& fragment : fragments_) bytes += fragment.eager_bytes();
  return bytes;
}

std::int64_t ProgressExchange::bytes_per_exchange() const { return wire_->wire_bytes(consensus_.numel(), round_.wire); }

void ProgressExchange::settle() {
  for (Fragment& fragment : old_fragments_) fragment.settle();
  for (Fragment& fragment : fragments_) fragment.settle();
  if (meter_) meter_->settle();
}

/// Between two steps, this one is within the round, and everything in flight is due in this round or the next.
void ProgressExchange::check_in_step(const std::string& name) const {
  if (!measuring() && !(round_.begin <= steps_ && steps_ < round_.end())) {
    refuse_damaged(name + "/round/begin", static_cast<double>(round_.begin));
  }
  const std::int64_t last = round_.end() + std::max(recipe_.max_local_steps, recipe_.local_steps);
  const auto check = [&](const Fragment& fragment) {
    if (!fragment.in_flight()) return;
    const std::int64_t due = fragment.oldest_apply_step();
    if (!(steps_ < due && due <= last)) refuse_damaged(name + ": an apply_step", static_cast<double>(due));
  };
  std::for_each(old_fragments_.begin(), old_fragments_.end(), check);
  std::for_each(fragments_.begin(), fragments_.end(), check);
}

void ProgressExchange::adopt(StateVisitor& visitor, const std::string& name) {
  names_.visit(visitor, "consensus", consensus_);
  names_.visit(visitor, "momentum", momentum_);
  for (Fragment& fragment : fragments_) fragment.momentum_was_set();
  co2::visit(visitor, name + "/rates", context_.last_rates, context_.last_rates.size());
}

void ProgressExchange::visit(Walk& walk, const std::string& name) {
  StateVisitor& visitor = walk.visitor();
  names_.visit(visitor, "consensus", consensus_);
  names_.visit(visitor, "momentum", momentum_);
  const auto limit = static_cast<std::size_t>(std::max(recipe_.max_local_steps, recipe_.local_steps));
  visit_counter(visitor, name + "/steps", steps_);
  visit_counter(visitor, name + "/round/number", round_.number);
  visit_counter(visitor, name + "/round/begin", round_.begin);
  round_.local_steps = static_cast<int>(
      visit_count(visitor, name + "/round/local_steps", static_cast<std::size_t>(round_.local_steps), limit));
  visit_wire(visitor, name + "/round/wire", round_.wire);
  co2::visit(visitor, name + "/rates", context_.last_rates, context_.last_rates.size());
  visit_counter(visitor, name + "/clipping/exchanges", context_.clipping.exchanges);
  visit_counter(visitor, name + "/clipping/clipped", context_.clipping.clipped);
  visit_amount(visitor, name + "/clipping/lost", context_.clipping.lost);
  visit_counter(visitor, name + "/left_out", context_.left_out);
  // Fragments of an earlier cut are part of it as long as one of theirs is in flight.
  const bool any_old =
      std::any_of(old_fragments_.begin(), old_fragments_.end(), [](const Fragment& f) { return f.in_flight(); });
  const std::size_t old = visit_count(visitor, name + "/old_fragments", any_old ? old_fragments_.size() : 0, limit);
  const std::size_t now = visit_count(visitor, name + "/fragments", fragments_.size(), limit);
  if (now == 0 || round_.local_steps == 0)
    throw DataError("the state that is being read is of no round: it is damaged");
  // Old and new fragments share elements, and what rounding leaves behind of them: who of them is the last, is only
  // known at the end.
  if (any_old) settle();
  if (walk.reads()) {
    if (old > 0 && old != fragments_.size()) cut(static_cast<int>(old));
    if (old > 0 || now != fragments_.size()) cut(static_cast<int>(now));
    round_.fragments = static_cast<int>(now);
  }
  for (std::size_t i = 0; i < old; ++i) {
    old_fragments_[i].visit(walk, fmt::format("{}/old_fragment/{}", name, i), /*with_rest=*/false);
  }
  for (std::size_t i = 0; i < now; ++i)
    fragments_[i].visit(walk, fmt::format("{}/fragment/{}", name, i), /*with_rest=*/true);
  check_in_step(name);
  if (!meter_) return;
  meter_->visit(walk, name + "/meter");
  bool planned = control_.has_value();
  co2::visit(visitor, name + "/planned", planned);
  if (walk.reads()) {
    control_.reset();
    if (planned) control_.emplace(limits(), Plan{round_.local_steps, round_.fragments, round_.wire});
  }
  if (control_) control_->visit(visitor, name + "/control");
}

}  // namespace co2
