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

  struct Step {
    std::int64_t steps = 0;   ///< how many there were, with this one
    bool updated = false;     ///< it was made, and not skipped
    bool round_ends = false;  ///< with it
    std::int64_t round = 0;
  };
  /// After each step; throws CommError if something that is under way has failed.
  void after_step(const Step& step);
  /// Applies what is in flight, and averages the buffers once more, blocking.
  void finish(std::int64_t round);
  void settle();
  void visit(Walk& walk);
  std::int64_t bytes() const;

 private:
  std::vector<SecondMoment> second_moments() const;
  void exchange_buffers(std::int64_t round, bool at_once);
  void exchange_moments(std::int64_t round);
  void apply_moments(const std::vector<SecondMoment>& moments);

  const Recipe& recipe_;
  const TrainedModel& model_;
  const std::vector<TrainedTensor>& trained_;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<BackgroundAverage> of_buffers_;  // null: there is nobody, or nothing, to average
  std::unique_ptr<BackgroundAverage> of_moments_;
  std::int64_t since_moments_ = 0;  // steps since they were sent, in each of which they have faded
};

}  // namespace co2
