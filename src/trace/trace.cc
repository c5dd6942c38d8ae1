#include <co2/trace.h>

#include <algorithm>

#include "trace/interval_union.h"

namespace co2 {

namespace {
constexpr std::size_t kRoundsKept = 4096;
constexpr std::int64_t kRoundsOpen = 4;
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

struct Trace::Totals {
  Communication run;
  std::map<std::int64_t, Communication> rounds;
};

Trace::Trace(std::size_t capacity)
    : capacity_(std::max<std::size_t>(capacity, 1)), totals_(std::make_unique<Totals>()) {}
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
  const auto [round, is_new] = totals_->rounds.try_emplace(span.round);
  round->second.add(span);
  // Only exchanges of the last rounds are still under way.
  if (const auto over = totals_->rounds.find(span.round - kRoundsOpen); is_new && over != totals_->rounds.end()) {
    over->second.transfers.close();
  }
  if (totals_->rounds.size() > kRoundsKept) totals_->rounds.erase(totals_->rounds.begin());
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
  for (const auto& [round, communication] : totals_->rounds) result.emplace(round, communication.overlap);
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
