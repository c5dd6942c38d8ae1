#pragma once

#include <co2/state.h>

#include <cstddef>
#include <string>
#include <vector>

namespace co2 {

/// What a worker has done on a fragment since its last launch.
struct SinceLaunch {
  double samples = 0;
  double steps = 0;
  double unsent_steps = 0;    ///< also of rounds before that, in which it sent nothing and kept its progress
  std::vector<double> rates;  ///< their sum over the unsent steps, per parameter group

  void add_step(double more_samples, const std::vector<double>& rates_now);
  /// It was launched, and what it stood for was sent, or is kept.
  void restart(bool sent);
  /// A share of what another fragment has, whose elements this one takes over.
  void add(const SinceLaunch& other, double share);
  void visit(StateVisitor& visitor, const std::string& name, std::size_t groups);
};

}  // namespace co2
