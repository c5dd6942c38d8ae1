#pragma once

#include <co2/communicator.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace co2 {

/// How long at least one of several intervals lasted, which may overlap and come in any order.
class IntervalUnion {
 public:
  void add(Clock::time_point begin, Clock::time_point end) {
    if (end <= begin) return;
    // Everything that touches the new interval becomes one with it.
    auto next = pieces_.upper_bound(begin);
    if (next != pieces_.begin() && std::prev(next)->second >= begin) --next;
    while (next != pieces_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      length_ -= next->second - next->first;
      next = pieces_.erase(next);
    }
    pieces_.emplace(begin, end);
    length_ += end - begin;
    // Nothing so late comes any more that it could touch the oldest pieces: their length is all that is left of them.
    if (pieces_.size() > kPieces) pieces_.erase(pieces_.begin());
  }
  /// Nothing is added any more, or at least nothing that could overlap: frees what it took to tell.
  void close() { pieces_.clear(); }
  double seconds() const { return std::chrono::duration<double>(length_).count(); }

 private:
  static constexpr std::size_t kPieces = 1024;
  std::map<Clock::time_point, Clock::time_point> pieces_;  // disjoint; begin to end
  Clock::duration length_{0};
};

}  // namespace co2
