#include "island/tour.h"

#include <algorithm>
#include <numeric>

namespace co2 {

Tour::Tour(std::size_t first, std::size_t end)
    : first_(first), order_(end - first), places_(order_.size()), used_(order_.size()) {
  std::iota(order_.begin(), order_.end(), first);
  std::iota(places_.begin(), places_.end(), std::size_t{0});
}

void Tour::reorder(const std::vector<std::size_t>& used) {
  std::vector<std::size_t> order = used;
  auto behind = order.begin();
  for (const std::size_t unit : order_) {
    const auto found = std::find(order.begin(), order.end(), unit);
    behind = (found != order.end() ? found : order.insert(behind, unit)) + 1;
  }
  order_ = std::move(order);
  for (std::size_t place = 0; place < order_.size(); ++place) places_[order_[place] - first_] = place;
}

void Tour::begin(Leg leg, bool has_first) {
  leg_ = leg;
  visited_ = has_first ? 1 : 0;
  std::fill(used_.begin(), used_.end(), false);
}

std::optional<std::size_t> Tour::next() const {
  if (leg_ == Leg::kNone || visited_ == order_.size()) return std::nullopt;
  return unit_at(visited_);
}

std::vector<std::size_t> Tour::before(std::size_t unit) const {
  std::vector<std::size_t> units;
  for (std::size_t i = 0; i < place(unit); ++i) units.push_back(unit_at(i));
  return units;
}

std::size_t Tour::place(std::size_t unit) const {
  const std::size_t place = places_[unit - first_];
  return leg_ == Leg::kBackward ? order_.size() - 1 - place : place;
}

std::size_t Tour::unit_at(std::size_t place) const {
  return order_[leg_ == Leg::kBackward ? order_.size() - 1 - place : place];
}

}  // namespace co2
