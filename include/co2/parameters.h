#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace co2 {

/// A tensor that is trained.
struct Parameter {
  at::Tensor tensor;      ///< a leaf that requires a gradient; it is given other memory (set_data())
  std::string name;       ///< its own, the same on all workers: what messages and saved state call it
  std::size_t group = 0;  ///< whose rate it has
  /// A kind: where a worker trains a shard, only parameters of one kind share a tensor of it. For optimizers that have
  /// state by then which differs between parameters (how many steps they have seen); otherwise leave it alone.
  int kind = 0;
};

/// Frees a tensor's memory and keeps its shape, for a model that is made block after block and is never in memory as a
/// whole: TrainedModel::first_values says what such a parameter begins with. Until it has some again, reading or
/// writing it is like using a pointer to nothing. Throws OptionError for a part of a larger tensor.
void release_memory(const at::Tensor& parameter);

/// Writes what the parameter of that name begins with into a tensor of its shape, which has zeros in it.
using FirstValues = std::function<void(const std::string& name, const at::Tensor& into)>;

/// Looks at a parameter's values, as a tensor of its shape that is gone after the call, and must not be changed.
using ParameterVisitor = std::function<void(const std::string& name, const at::Tensor& values)>;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// What happens around the forward of a unit (below). Implemented by the Core.
class UnitKeeper {
 public:
  virtual ~UnitKeeper() = default;
  /// Brings the unit's parameters here.
  virtual void before_forward() = 0;
  /// Lets them go, and sees to it that they are here again for backward.
  virtual at::Tensor after_forward(at::Tensor output) = 0;
};

/// Parameters that ZeRO 3 brings together only while they are used: in one part of the model, once per pass, between
/// the two calls of the keeper that `keep` is given (null: there is none any more).
struct ParameterUnit {
  std::vector<std::size_t> parameters;  ///< places in TrainedModel::parameters
  std::function<void(std::shared_ptr<UnitKeeper>)> keep;
};

struct TrainedTensor;

/// A mean of squared gradients, v = β₂ v + (1 - β₂) g² in every step, as it is in the optimizer.
struct SecondMoment {
  at::Tensor value;  ///< undefined: there is none yet
  double decay = 0;  ///< β₂, 0..1
};

/// That of each tensor that the inner optimizer trains.
using SecondMoments = std::function<std::vector<SecondMoment>(const std::vector<TrainedTensor>& trained)>;

/// All that a Core needs to know of a model, in whatever language it was written.
struct TrainedModel {
  /// About in the order in which forward uses them: gradients leave from the last to the first.
  std::vector<Parameter> parameters;
  /// Statistics that belong to the model, such as those of batch norm. All workers begin with rank 0's; floating-point
  /// ones are averaged from then on.
  std::vector<NamedTensor> buffers = {};
  /// What else all workers must begin with: frozen parameters.
  std::vector<at::Tensor> others = {};
  std::vector<ParameterUnit> units = {};
  /// Needed if parameters have no memory (release_memory()). Called on rank 0 only, whose values all workers begin
  /// with: for one such parameter after the other, in the order of `parameters`.
  FirstValues first_values = {};
  /// What must be the same on all workers and can be told in words: the kind of optimizer, say.
  std::string description = {};
  /// Needed for Options::agree_moments. Called between the inner step and the end of end_step(), and by finish().
  SecondMoments second_moments = {};
  /// Whoever makes the inner step heeds Options::rate_factor. Otherwise a Core refuses one.
  bool scales_rates = false;
};

/// A tensor that the inner optimizer is to update: one of the parameters, or, where the worker trains a shard, a
/// stretch of it. Its grad() is the gradient, once it is final. What belongs to none of the pieces is padding: it stays
/// zero, and is not saved.
struct TrainedTensor {
  /// Elements of a parameter in the order in which memory has them, and where they are in `tensor`.
  struct Piece {
    std::size_t parameter = 0;  ///< its place in TrainedModel::parameters
    std::int64_t begin = 0;     ///< its first element that is here
    std::int64_t size = 0;
    std::int64_t at = 0;
  };
  at::Tensor tensor;
  std::size_t group = 0;
  std::vector<Piece> pieces;
};

}  // namespace co2
