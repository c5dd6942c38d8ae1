#include "sync/usual_progress.h"

#include <algorithm>
#include <cmath>

#include "sync/visiting.h"

namespace co2 {

namespace {
constexpr double kFading = 0.999;
constexpr int kToKnow = 2;
}  // namespace

/// What is usual for a round of so many steps.
double UsualProgress::after(double steps) const {
  const double longer = steps / steps_;
  return size_ * std::max(longer, std::sqrt(longer));
}

bool UsualProgress::is_burst(double known, double steps, double most) const {
  return seen_ == kToKnow && known > most * after(steps);
}

double UsualProgress::limit(const Size& size, double steps, double most) {
  if (!(size.all > 0) || !std::isfinite(size.all) || !(steps > 0)) return 1;
  const double usual = after(steps);
  const double factor = is_burst(size.known, steps, most) ? most * usual / size.known : 1;
  seen_ = std::min(seen_ + 1, kToKnow);
  size_ = std::max(factor * size.all, kFading * usual);
  steps_ = steps;
  return factor;
}

void UsualProgress::include(const UsualProgress& other) {
  if (other.seen_ == 0) return;
  if (seen_ == 0) {
    *this = other;
  } else {
    size_ = std::max(size_, other.after(steps_));
    seen_ = std::max(seen_, other.seen_);
  }
}

void UsualProgress::visit(StateVisitor& visitor, const std::string& name) {
  visit_amount(visitor, name + "/size", size_);
  visit_amount(visitor, name + "/steps", steps_);
  co2::visit(visitor, name + "/seen", seen_);
}

}  // namespace co2
