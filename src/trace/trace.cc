#include <co2/trace.h>

#include <algorithm>

#include "trace/interval_union.h"

namespace co2 {

namespace {
constexpr std::ptrdiff_t kRoundsKept = 4096;
constexpr std::ptrdiff_t kRoundsOpen = 4;
double to_seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }
}  // namespace

double Overlap::overlap() const {
  if (transfer_seconds <= 0) return 1;
  return std::clamp(1 - exposed_seconds / transfer_seconds, 0.0, 1.0);
}

namespace {
struct Communication {
  Overlap overlap;
  IntervalUnion transfers;  // buckets, fragments and gradients are under way side by side

  void add(const Span& span) {
    if (span.kind == SpanKind::kWait) overlap.exposed_seconds += to_seconds(span.end - span.begin);
    if (span.kind != SpanKind::kTransfer) return;
    overlap.bytes += span.bytes;
    transfers.add(span.begin, span.end);
    overlap.transfer_seconds = transfers.seconds();
  }
};
}  // namespace

/// The newest rounds, in one block of memory (see IntervalUnion).
struct Trace::Totals {
  struct Round {
    std::int64_t number;
    Communication communication;
  };
  Communication run;
  std::vector<Round> rounds;  // by number

  /// A round is begun by the first span of it, in about the order of their numbers.
  void add(const Span& span) {
    const auto place = std::lower_bound(rounds.begin(), rounds.end(), span.round,
                                        [](const Round& round, std::int64_t number) { return round.number < number; });
    if (place != rounds.end() && place->number == span.round) {
      place->communication.add(span);
      return;
    }
    auto round = rounds.insert(place, {span.round, {}});
    round->communication.add(span);
    // Only exchanges of the last rounds are still under way.
    for (std::ptrdiff_t before = std::min(round - rounds.begin(), 2 * kRoundsOpen); before > 0; --before) {
      if ((--round)->number <= span.round - kRoundsOpen) round->communication.transfers.close();
    }
    if (std::ssize(rounds) > 2 * kRoundsKept) rounds.erase(rounds.begin(), rounds.end() - kRoundsKept);
  }
};

Trace::Trace(std::size_t capacity)
    : capacity_(std::max<std::size_t>(capacity, 1)), totals_(std::make_unique<Totals>()) {
  ring_.reserve(capacity_);
}
Trace::~Trace() = default;

void Trace::record(const Span& span) {
  const std::lock_guard lock(mutex_);
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
  } else {
    ring_[next_] = span;
  }
  next_ = (next_ + 1) % capacity_;
  seconds_[static_cast<int>(span.kind)] += to_seconds(span.end - span.begin);
  if (span.kind != SpanKind::kWait && span.kind != SpanKind::kTransfer) return;
  totals_->run.add(span);
  totals_->add(span);
}

std::vector<Span> Trace::spans() const {
  const std::lock_guard lock(mutex_);
  if (ring_.size() < capacity_) return ring_;
  std::vector<Span> ordered(ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
  ordered.insert(ordered.end(), ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  return ordered;
}

std::map<std::int64_t, Overlap> Trace::rounds() const {
  const std::lock_guard lock(mutex_);
  std::map<std::int64_t, Overlap> result;
  const std::size_t begin = totals_->rounds.size() - std::min<std::size_t>(totals_->rounds.size(), kRoundsKept);
  for (std::size_t i = begin; i < totals_->rounds.size(); ++i) {
    result.emplace(totals_->rounds[i].number, totals_->rounds[i].communication.overlap);
  }
  return result;
}

Overlap Trace::total() const {
  const std::lock_guard lock(mutex_);
  return totals_->run.overlap;
}

double Trace::seconds(SpanKind kind) const {
  const std::lock_guard lock(mutex_);
  return seconds_[static_cast<int>(kind)];
}

}  // namespace co2
