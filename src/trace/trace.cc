#include <co2/trace.h>

#include <algorithm>

namespace co2 {

namespace {
constexpr std::size_t kRoundsKept = 4096;
double to_seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }
}  // namespace

double Overlap::overlap() const {
  if (transfer_seconds <= 0) return 1;
  return std::clamp(1 - exposed_seconds / transfer_seconds, 0.0, 1.0);
}

Trace::Trace(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {}

void Trace::add(RoundState& state, const Span& span) {
  if (span.kind == SpanKind::kWait) state.overlap.exposed_seconds += to_seconds(span.end - span.begin);
  if (span.kind != SpanKind::kTransfer) return;
  state.overlap.bytes += span.bytes;
  // Transfers of several buckets run side by side: count the time that any of them was under way once. They are
  // recorded in order of their launch, so the union grows at its end.
  const Clock::time_point begin = std::max(span.begin, state.covered_until);
  if (span.end > begin) state.overlap.transfer_seconds += to_seconds(span.end - begin);
  state.covered_until = std::max(state.covered_until, span.end);
}

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
  add(total_, span);
  add(rounds_[span.round], span);
  if (rounds_.size() > kRoundsKept) rounds_.erase(rounds_.begin());
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
  for (const auto& [round, state] : rounds_) result.emplace(round, state.overlap);
  return result;
}

Overlap Trace::total() const {
  const std::lock_guard lock(mutex_);
  return total_.overlap;
}

double Trace::seconds(SpanKind kind) const {
  const std::lock_guard lock(mutex_);
  return seconds_[static_cast<int>(kind)];
}

}  // namespace co2
