#pragma once

#include <ATen/core/Tensor.h>
#include <co2/state.h>

#include <cstdint>
#include <string>
#include <vector>

namespace co2 {

/// Which parameters of a fragment this worker's inner steps have changed since it last sent something of it. Progress
/// itself does not tell: on a coarse wire a worker still has some of what it did long ago. So it looks whether the bits
/// are still those that it saw last, whenever an exchange is about to use or to change them.
///
/// On a device nothing is looked at from here, and everything counts as trained.
class TrainedHere {
 public:
  /// Whatever is not as it was seen last has been trained; the first time, everything counts as trained.
  void look(const std::vector<at::Tensor>& live);
  /// What was seen is an exchange's doing, and nobody's training. Nothing to do unless it is being looked at.
  void overlook(const std::vector<at::Tensor>& live);
  /// What was trained has been sent.
  void restart();
  /// Nobody wants to know for now.
  void forget() { seen_.clear(); }
  bool looks() const { return !seen_.empty(); }
  /// 1 for each parameter that has been trained, 0 for the others.
  std::vector<double> answer() const;

  void visit(StateVisitor& visitor, const std::string& name, std::size_t parameters);

 private:
  struct Seen {
    std::uint64_t checksum = 0;
    bool trained = true;
  };
  std::vector<Seen> seen_;
};

}  // namespace co2
