#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "comm/first_failure.h"

namespace co2 {

/// Tells when backward has produced a parameter's gradient, and how often it has since the last reset(). A hook of the
/// user's on the same event stays: it runs first, and is alone again afterwards.
///
/// Thread safety: the function is called on the thread of backward, which must not overlap with anything else here.
class GradientHooks {
 public:
  /// `on_gradient(i, pass)`: the i-th of `parameters` has got its gradient in this backward pass, counted from 1 to
  /// `accumulation_steps`. More passes than that make backward throw OptionError, and once a collective has failed it
  /// throws that CommError again, whatever the passes: nobody will count them anew.
  GradientHooks(std::vector<at::Tensor> parameters, int accumulation_steps, FirstFailure& failure,
                std::function<void(std::size_t, int)> on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Throws OptionError if there were too many passes: what they have added up is of no use.
  void check_passes() const;
  /// Whether there was a pass since then.
  bool any_pass() const;
  /// A step is over: passes are counted from 1 again. One that the user has set in the meantime, in place of ours, is
  /// joined by ours from now on.
  void reset();

 private:
  class Hook;
  void called(std::size_t parameter);
  void join(std::size_t parameter);
  Hook* ours(std::size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  const int accumulation_steps_;
  FirstFailure& failure_;
  std::function<void(std::size_t, int)> on_gradient_;
  std::vector<int> passes_;
  bool too_many_ = false;
};

}  // namespace co2
