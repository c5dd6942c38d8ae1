#pragma once

#include <co2/communicator.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <vector>

namespace co2 {

/// How long at least one of several intervals lasted, which may overlap and come in any order.
///
/// Its memory is one block: small pieces that outlive a step would be scattered between the tensors of that step, and
/// keep the allocator from using their memory again.
class IntervalUnion {
 public:
  void add(Clock::time_point begin, Clock::time_point end) {
    if (end <= begin) return;
    // Everything that touches the new interval becomes one with it.
    const auto first = std::lower_bound(pieces_.begin(), pieces_.end(), begin,
                                        [](const Piece& piece, Clock::time_point time) { return piece.end < time; });
    auto last = first;
    for (; last != pieces_.end() && last->begin <= end; ++last) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
      length_ -= last->end - last->begin;
    }
    length_ += end - begin;
    pieces_.insert(pieces_.erase(first, last), Piece{begin, end});
    // Nothing so late comes any more that it could touch the oldest pieces: their length is all that is left of them.
    if (std::ssize(pieces_) > kPieces) pieces_.erase(pieces_.begin(), pieces_.begin() + kPieces / 2);
  }
  /// Nothing is added any more, or at least nothing that could overlap: frees what it took to tell.
  void close() { std::vector<Piece>().swap(pieces_); }
  double seconds() const { return std::chrono::duration<double>(length_).count(); }

 private:
  struct Piece {
    Clock::time_point begin;
    Clock::time_point end;
  };
  static constexpr std::ptrdiff_t kPieces = 1024;
  std::vector<Piece> pieces_;  // disjoint, oldest first
  Clock::duration length_{0};
};

}  // namespace co2
