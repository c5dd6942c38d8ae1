#pragma once

#include <co2/parameters.h>
#include <co2/trace.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "island/island.h"
#include "options/recipe.h"
#include "sync/background_average.h"
#include "sync/walk.h"

namespace co2 {

/// What workers average beside the parameters' progress: the model's buffers, once per round, and the inner optimizer's
/// second moments, where they are to be agreed on, every few steps.
///
/// Thread safety: used by the training thread.
class SideAverages {
 public:
  /// `all`: all workers. `trained`: what the inner optimizer updates. Both models and tensors must outlive it.
  SideAverages(const Recipe& recipe, const TrainedModel& model, const Island& island,
               const std::shared_ptr<Communicator>& all, const std::vector<TrainedTensor>& trained, Trace& trace);
  ~SideAverages();
  SideAverages(const SideAverages&) = delete;
  SideAverages& operator=(const SideAverages&) = delete;

  /// After each step; throws CommError if something that is under way has failed.
  void after_step(std::int64_t steps, bool round_ends, std::int64_t round);
  /// Applies what is in flight, and averages the buffers once more, blocking.
  void finish(std::int64_t round);
  void settle();
  void visit(Walk& walk);
  std::int64_t bytes() const;

 private:
  std::vector<at::Tensor> second_moments() const;
  void exchange(BackgroundAverage& average, const std::vector<at::Tensor>& tensors, std::int64_t round) const;

  const Recipe& recipe_;
  const TrainedModel& model_;
  const std::vector<TrainedTensor>& trained_;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<BackgroundAverage> of_buffers_;  // null: there is nobody, or nothing, to average
  std::unique_ptr<BackgroundAverage> of_moments_;
};

}  // namespace co2
