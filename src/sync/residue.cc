#include "sync/residue.h"

#include <algorithm>
#include <cmath>

namespace co2 {

namespace {
double quotient(double a, double b) { return b > 0 ? a / b : 0; }
}  // namespace

double Residue::size_of(double all, double rate, double rounds) const {
  const double fresh = std::max(all - norm, 0.0);
  return quotient(fresh, rate * rounds) + size * quotient(all - fresh, norm);
}

bool Residue::tells_what_is_fresh(double all, double rate, double rounds) const {
  // At a steady rate, with what two bits leave of one large element among many small ones, it is 2 at most.
  constexpr double kSure = 3;
  return quotient(all + norm, rate * rounds) <= kSure * size_of(all, rate, rounds);
}

void Residue::scale(double share) {
  norm *= share;
  size *= share;
}

void Residue::include(const Residue& other, double share) {
  norm = std::hypot(norm, std::sqrt(share) * other.norm);
  size = std::hypot(size, std::sqrt(share) * other.size);
}

}  // namespace co2
