#pragma once

#include <co2/state.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "options/recipe.h"

namespace co2 {

/// How much shorter Adam's mean step over G workers is than the step that `ddp` would make, measured while training.
///
/// Each worker divides its own gradient by the root of its own second moment, noise included; `ddp` divides the mean
/// gradient, whose noise is G times less. So the workers' mean step is too short, by √(mean of g² / square of the mean
/// g): √G where gradients are all noise, 1 where all workers see the same. Which of them it is depends on the batch,
/// the model and the progress of training, and only the workers together can see it: a worker alone takes the swings
/// that all of them make (a rate at the edge of what is stable) for noise.
///
/// So each shows a few hundred coordinates of its gradient, divided as Adam does, now and then; the sums travel with
/// the other control numbers.
class GradientAgreement {
 public:
  /// Whether it matters. SGD's mean step is just `ddp`'s; and who starts again from the consensus after every round is
  /// tuned differently.
  static bool matters(const Recipe& recipe, const torch::optim::Optimizer& optimizer);

  /// For a worker at `place` in one of `islands` islands: those at the same place have the same shard of the model, or
  /// all of it.
  GradientAgreement(int place, int places, int islands);

  /// How many numbers one sample has.
  std::size_t width() const;
  /// This worker's share of the sums over all workers, from the gradients that the optimizer is about to use; it must
  /// be Adam or AdamW. All zero in its first step.
  std::vector<double> sample(torch::optim::Optimizer& optimizer);
  /// Takes in what came of it: at each place from the workers that had something to show, if they are at least two. One
  /// that skips its steps, or whose gradients are not finite, does not keep the others from learning.
  void take(std::span<const double> sums);

  /// In [1, √islands]; 1 before anything is known.
  double shortening() const;
  /// How many times `ddp`'s rate a worker should take: more than what is missing, as short rounds have learned better
  /// with steps that are a little too long than with steps that are just right; at most √islands, and at most
  /// twice as much after every 64 looks: a young model is the one that long steps throw back.
  double rate_factor() const;
  void visit(StateVisitor& visitor, const std::string& name);

 private:
  double most() const;
  /// Numbers about a place: its coordinates, the sum of their squares, and how many workers have shown them.
  std::size_t of_place() const { return coordinates_ + 2; }

  const int place_, places_, islands_;
  const std::size_t coordinates_;                    // of each place
  double mean_of_squares_ = 0, square_of_mean_ = 0;  // both over the newest samples, the older the less
  std::int64_t looks_ = 0;                           // samples taken in
};

}  // namespace co2
