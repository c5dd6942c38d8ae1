#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace co2 {

/// Sees all that defines the future of a run, each thing under a name of its own, in a fixed order. One that writes
/// copies the values; one that reads puts others in their place, which another run had under the same names. Which of
/// them is chosen, it must stay the whole walk long.
///
/// Between two steps, and collective: all workers walk at the same step. What is on the wire is waited for, and is part
/// of what is seen; nothing is applied.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// Whether values are put in place.
  virtual bool reads() const = 0;
  /// A tensor that is there. One that reads copies into it; shape and dtype must be the same.
  virtual void tensor(const std::string& name, const at::Tensor& value) = 0;
  virtual void number(const std::string& name, double& value) = 0;
  virtual void number(const std::string& name, std::int64_t& value) = 0;
};

}  // namespace co2
