#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>

#include <cstdint>
#include <vector>

namespace co2 {

/// A worker's gradients, on their way from backward to the inner optimizer:
///
///   OwnGradients       stay where backward puts them
///   GradientReducer    are averaged over an island, whole (`ddp`, ZeRO 0)
///   ShardedGradients   are averaged over an island, by shard (ZeRO 1 to 3)
class Gradients {
 public:
  /// What is to become of them.
  enum class Use {
    kStep,     ///< the optimizer's step
    kSkip,     ///< no step: neither here nor on the workers that share them
    kDiscard,  ///< nothing, as if backward had not run: all workers that share them say so
  };

  virtual ~Gradients() = default;

  /// After backward, and also without one. Returns true if they are final, and where the optimizer reads them; false if
  /// this worker or one that shares them did not want to step: then there are none any more. Collective among those
  /// that share them, and after it backward passes are counted anew.
  virtual bool finish(std::int64_t round, Use use) = 0;

  /// Whether other workers count on them, in equal shares.
  virtual bool averaged() const = 0;
  /// Whether backward has run since the last finish(), as far as that is known.
  virtual bool under_way() const { return false; }
  /// Whether every worker's optimizer changes its shard only.
  virtual bool by_shard() const { return false; }
  /// What the inner optimizer updates.
  virtual const std::vector<TrainedTensor>& trained() const = 0;

  /// Between finish() and the optimizer's step: scales them down to a 2-norm of at most `max_norm` over the whole
  /// model, and returns the norm before. Throws OptionError unless max_norm is positive.
  double clip(double max_norm);

  /// The most that gradients have taken at once, and the most that collectives needed besides.
  virtual std::int64_t most_bytes() const = 0;
  virtual std::int64_t most_scratch_bytes() const { return 0; }

 protected:
  /// What the optimizer will read.
  virtual std::vector<at::Tensor> final_ones() const = 0;
  /// A sum over the workers that hold different parts of the gradients.
  virtual double sum_over_holders(double value) const { return value; }
};

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters);
/// The optimizer updates the parameters themselves.
std::vector<TrainedTensor> each_by_itself(const std::vector<Parameter>& parameters);

/// The gradients of `parameters` that backward has produced.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);
void drop_gradients_of(const std::vector<at::Tensor>& parameters);

class OwnGradients final : public Gradients {
 public:
  explicit OwnGradients(const std::vector<Parameter>& parameters)
      : trained_(each_by_itself(parameters)), parameters_(tensors_of(parameters)) {}
  bool finish(std::int64_t round, Use use) override;
  bool averaged() const override { return false; }
  const std::vector<TrainedTensor>& trained() const override { return trained_; }
  std::int64_t most_bytes() const override { return most_bytes_; }

 private:
  std::vector<at::Tensor> final_ones() const override { return gradients_of(parameters_); }

  std::vector<TrainedTensor> trained_;
  std::vector<at::Tensor> parameters_;
  std::int64_t most_bytes_ = 0;  ///< at a step
};

}  // namespace co2
