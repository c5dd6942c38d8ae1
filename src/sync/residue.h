#pragma once

namespace co2 {

/// What rounding has left of a worker's progress, in one fragment and parameter group. It is part of all that
/// the worker sends next, together with fresh progress; but it was made at the rate, and in the rounds, of its own
/// time. In today's units it would look like a burst after a fall of the rate, or after a pause.
///
/// Only norms are known. Of two vectors that add up to one of norm `all`, the fresh one is at least all - norm long:
/// that much counts as fresh. While rate and rounds do not change, this makes no difference.
struct Residue {
  double norm = 0;
  double size = 0;  ///< of it in units of the rate and per round, both of its time

  /// The size of all that there is now, with fresh progress made at `rate` and in so many rounds.
  double size_of(double all, double rate, double rounds) const;
  /// Whether that tells how large fresh progress is: it may point against what was left, and be as long as all + norm.
  /// Not while what was left at a much higher rate, or in a pause, outweighs what has come since.
  bool tells_what_is_fresh(double all, double rate, double rounds) const;
  /// As much of it is dropped as this leaves.
  void scale(double share);
  /// The same of elements that another cut of the model takes over: a share of them.
  void include(const Residue& other, double share);
};

}  // namespace co2
