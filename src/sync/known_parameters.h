#pragma once

#include <ATen/core/Tensor.h>
#include <co2/state.h>

#include <string>
#include <vector>

#include "base/range.h"

namespace co2 {

/// Of which parameters of a fragment this worker knows how large its progress usually is: of those that it has sent
/// some of twice. A parameter that has rested so far, because it was frozen, says nothing about what is usual for it;
/// when it begins to move, it is no burst, however many or large its elements are beside the others.
///
/// What is usual fades while a parameter rests (UsualProgress), and is forgotten here before it is too small.
class KnownParameters {
 public:
  /// It has heard of some.
  bool looks() const { return !memories_.empty(); }
  bool knows(std::size_t parameter) const {
    return parameter < memories_.size() && memories_[parameter].sent == kToKnow;
  }

  /// Progress is sent of those that have moved, and of them alone. The first time, it hears how many there are.
  void sent(const std::vector<bool>& moved);
  /// Nobody can tell how large its progress is for now.
  void forget(std::size_t parameter) { memories_[parameter] = {}; }
  /// A parameter that another cut of the model has taken over from that one, or a part of it: the better known counts.
  void include(std::size_t parameter, const KnownParameters& others, std::size_t other);
  void resize(std::size_t parameters) { memories_.resize(parameters); }

  void visit(StateVisitor& visitor, const std::string& name, std::size_t parameters);

 private:
  static constexpr int kToKnow = 2;  // as for a fragment that is new: optimizers take their time to get going
  static constexpr int kToForget = 256;
  struct Memory {
    int sent = 0;    ///< how often, up to as often as it takes to know
    int rested = 0;  ///< exchanges since then
  };
  std::vector<Memory> memories_;
};

/// Which of these stretches differ between consensus and live: one-dimensional, contiguous, on one device. It is quick
/// for those whose first elements do. `roughly`: by more than the last bits, which remain where a worker is mixed with
/// the consensus.
std::vector<bool> have_moved(const at::Tensor& consensus, const at::Tensor& live, const std::vector<Range>& stretches,
                             bool roughly);

/// Squared 2-norm of consensus - live, without a copy of them.
double squared_distance(const at::Tensor& consensus, const at::Tensor& live);

}  // namespace co2
