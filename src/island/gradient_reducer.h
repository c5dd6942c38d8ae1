#pragma once

#include <co2/communicator.h>
#include <co2/trace.h>

#include <memory>
#include <vector>

#include "island/gradient_hooks.h"
#include "island/gradients.h"
#include "island/vote.h"
#include "trace/bytes.h"

namespace co2 {

/// Averages gradients over the workers while backward is still running (`ddp`, and islands without ZeRO).
///
/// Parameters are put into buckets in reverse order, about the order in which backward produces gradients. A hook on
/// each parameter moves its gradient into its bucket; a full bucket is all-reduced in the background. Buckets are
/// started in the same order on all workers, whatever the order in which they fill. The Vote also tells, per parameter,
/// whether any worker had a gradient, so that a parameter that nobody used keeps none, and the inner optimizer leaves
/// it alone as it would on a single worker.
///
/// Thread safety: the hooks run on the thread of backward, which must not overlap with finish(). From the last backward
/// pass until finish() the gradients belong to the exchange: whoever reads them sees something between his own and the
/// average.
class GradientReducer final : public Gradients {
 public:
  /// `control`: the same workers, for the Vote; null if there is only one.
  GradientReducer(std::shared_ptr<Communicator> communicator, std::shared_ptr<Communicator> control,
                  const std::vector<Parameter>& trained, std::int64_t bucket_bytes, int accumulation_steps,
                  Witnesses witnesses, FirstFailure& failure, Trace& trace);
  ~GradientReducer() override;  ///< waits for what is under way
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Starts what backward has not, waits, and puts the averages into the parameters' gradients.
  bool finish(std::int64_t round, Use use) override;
  bool under_way() const override { return hooks_->any_pass(); }
  bool averaged() const override { return true; }
  const std::vector<TrainedTensor>& trained() const override { return trained_; }
  /// Buckets, and gradients that still add up outside of them.
  std::int64_t most_bytes() const override { return bytes_.most(); }

 private:
  struct Slot {
    at::Tensor parameter;
    at::Tensor view;  ///< the gradient's place in its bucket
    std::size_t bucket;
    std::int64_t held = 0;  ///< bytes of a gradient that still adds up outside of its bucket
    bool ready = false;
    bool used = false;  ///< this worker has a gradient
  };
  struct Bucket {
    at::Tensor buffer;
    std::size_t slots = 0;
    std::size_t ready = 0;
    WorkPtr work;
  };

  std::vector<at::Tensor> final_ones() const override { return gradients_of(hooks_->parameters()); }
  void on_gradient(Slot& slot, int pass);
  void fill(Slot& slot);
  void start_full_buckets();
  bool complete(std::int64_t round, Use use);
  void reset();

  std::shared_ptr<Communicator> communicator_;
  const int accumulation_steps_;
  FirstFailure& failure_;
  Trace& trace_;
  Vote vote_;
  std::vector<TrainedTensor> trained_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  std::size_t next_bucket_ = 0;  ///< all before it have been started
  PeakBytes bytes_;
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace co2
