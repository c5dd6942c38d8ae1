#pragma once

#include <co2/communicator.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace co2 {

enum class SpanKind {
  kCompute,   ///< the user's forward and backward, and the inner optimizer
  kOuter,     ///< launch and apply passes on the training thread
  kTransfer,  ///< a collective on the wire, in the background
  kWait,      ///< the training thread waiting for a transfer: exposed time
};

struct Span {
  SpanKind kind = SpanKind::kCompute;
  Clock::time_point begin;
  Clock::time_point end;
  std::int64_t round = 0;
  int fragment = -1;       ///< -1: not about one fragment
  std::int64_t bytes = 0;  ///< sent by this worker, for transfers
};

/// What became of a round's (or a whole run's) communication.
struct Overlap {
  double transfer_seconds = 0;  ///< time during which at least one of its transfers was under way
  double exposed_seconds = 0;   ///< time that the training thread waited for them
  std::int64_t bytes = 0;       ///< sent by this worker
  /// 1 - exposed / transfer, within 0..1; 1 if there was nothing to transfer.
  double overlap() const;
};

/// The timeline of one worker: the newest spans in a ring, and totals that never forget.
///
/// Thread safety: all members may be called from any thread (transfers end on the backend's threads).
class Trace {
 public:
  explicit Trace(std::size_t capacity = 1 << 16);
  ~Trace();

  void record(const Span& span);

  /// Spans in the ring, oldest first.
  std::vector<Span> spans() const;
  /// Rounds that are complete or under way, oldest first; at most the newest 4096.
  std::map<std::int64_t, Overlap> rounds() const;
  Overlap total() const;
  double seconds(SpanKind kind) const;  ///< sum over all spans of a kind, ever
  Clock::time_point origin() const { return origin_; }

 private:
  struct Totals;

  mutable std::mutex mutex_;
  const Clock::time_point origin_ = Clock::now();
  const std::size_t capacity_;
  std::size_t next_ = 0;
  std::vector<Span> ring_;
  std::unique_ptr<Totals> totals_;
  double seconds_[4] = {};
};

/// One worker's timeline in the Trace Event format, {"traceEvents": [...]}, which Perfetto opens. Times are relative to
/// `origin`, which should be about the same instant on all ranks.
std::string perfetto_json(const std::vector<Span>& spans, Clock::time_point origin, int rank);

}  // namespace co2
