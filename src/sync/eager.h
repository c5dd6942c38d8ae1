#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/range.h"
#include "options/recipe.h"

namespace co2 {

/// Eager updates (Kale et al. 2025): while the average of a round is on its way, a worker does not start from the
/// consensus as it is, but as it would be if the others had done nothing in that round.
///
/// There each worker has an outer optimizer of its own, whose gradient is Dₜ₋₁ + (dₜ − dₜ₋₁)/G: the average that has
/// arrived, with its own part of it replaced by the newest. All of that is linear. So what the workers' optimizers have
/// in common is our consensus, which gets every average one round late, and what is left is how far ahead of it a
/// worker is: −α/G times what the outer rule makes of its own d, with a momentum of its own.
class Eager {
 public:
  /// Of a fragment with these live parameters, on one of `islands` islands.
  Eager(const Recipe& recipe, std::vector<at::Tensor> live, int islands);

  /// The live parameters are ahead of the consensus no more: what they are from there is progress.
  void take_back();
  /// Remembers this worker's progress d = consensus − live, of which the others are told now. What `rests`, by where it
  /// is in the fragment, has none but rounding: it is frozen, and its momentum is forgotten.
  void remember(const std::vector<at::Tensor>& consensus, const std::vector<Range>& rests);
  /// The live parameters, which are the consensus now, go ahead of it by what was remembered.
  void go_ahead();
  /// What is on its way arrives at once, and all workers go on from the same.
  void finish();

  const at::Tensor& ahead() const { return ahead_; }
  const at::Tensor& momentum() const { return momentum_; }
  std::int64_t bytes() const;

 private:
  void add_to_live(double scale);

  const Recipe& recipe_;
  const std::vector<at::Tensor> live_;
  const int islands_;
  at::Tensor ahead_;     // of all parts, one after the other; between remember() and go_ahead(): d
  at::Tensor momentum_;  // the worker's own
};

}  // namespace co2
