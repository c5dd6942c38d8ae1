#pragma once

#include <co2/state.h>

#include <string>

namespace co2 {

/// How large a fragment's progress usually is, and so what a burst is. One number per exchange goes in, the same on all
/// workers: the mean over the workers of the root mean square of their progress, in units of the inner rate.
///
/// What is usual is the largest of the exchanges so far, which fades by a thousandth with each: a layer that rests for
/// some hundred rounds, but for weight decay, may go on as before. So it follows every optimizer, at any scale of its
/// gradients, up within an exchange; and in units of the rate it does not feel a schedule. Rounds differ in length:
/// progress grows with the number of steps if they agree in direction, and with its root if they do not. Whichever
/// allows more is what is allowed.
///
/// Progress of parameters that have rested so far is no burst (KnownParameters): it is not judged, but it is usual from
/// then on.
class UsualProgress {
 public:
  /// How large an exchange is.
  struct Size {
    double all = 0;
    double known = 0;  ///< without parameters that have rested so far
  };
  /// The factor, at most 1, that brings what is known of an exchange down to `most` times what is usual. It is 1 for
  /// the first two, because inner optimizers with momentum take their time to get going, and for one that is not
  /// finite, which no factor would mend.
  double limit(const Size& size, double steps, double most);
  /// Whether so much, all of it known, is more than `most` times what is usual.
  bool is_burst(double known, double steps, double most) const;

  /// For elements that come from several fragments: the largest of them.
  void include(const UsualProgress& other);

  void visit(StateVisitor& visitor, const std::string& name);

 private:
  double after(double steps) const;

  double size_ = 0;
  double steps_ = 1;
  int seen_ = 0;  ///< exchanges, up to as many as it takes to know what is usual
};

}  // namespace co2
