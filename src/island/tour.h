#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace co2 {

/// The order in which the workers of an island gather units that come and go. It must be the same on all of them,
/// whatever each of them uses: so in every leg, forward or backward, all units are gathered once, in one agreed order
/// and, backward, from its end. A worker only chooses how far ahead of its own computation it does that.
///
/// A pure account of where this worker is: it gathers nothing itself.
class Tour {
 public:
  enum class Leg { kNone, kForward, kBackward };

  /// Of the units `first` to `end` - 1, in that order until reorder().
  Tour(std::size_t first, std::size_t end);

  /// Goes forward through `used`, the units that a worker used, in the order in which it did. Those that it did not use
  /// stay behind the ones that they followed so far.
  void reorder(const std::vector<std::size_t>& used);
  const std::vector<std::size_t>& order() const { return order_; }

  /// The leg before must be complete. `has_first`: its first unit is here already, on all workers.
  void begin(Leg leg, bool has_first = false);
  Leg leg() const { return leg_; }
  /// The unit to gather next in this leg; empty if it is complete.
  std::optional<std::size_t> next() const;
  void advance() { ++visited_; }
  bool visited(std::size_t unit) const { return place(unit) < visited_; }
  /// The units before this one in this leg.
  std::vector<std::size_t> before(std::size_t unit) const;

  /// Whether this worker has computed with the unit in this leg.
  bool used(std::size_t unit) const { return used_[unit - first_]; }
  void use(std::size_t unit) { used_[unit - first_] = true; }

 private:
  std::size_t place(std::size_t unit) const;  ///< in this leg
  std::size_t unit_at(std::size_t place) const;

  std::size_t first_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> places_;  ///< in the order, by unit
  Leg leg_ = Leg::kNone;
  std::size_t visited_ = 0;  ///< in this leg
  std::vector<bool> used_;
};

}  // namespace co2
