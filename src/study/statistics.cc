#include "study/statistics.h"

#include <cmath>
#include <numbers>

namespace co2::study {

Sample sample_of(const std::vector<double>& values) {
  Sample sample{.count = values.size()};
  if (values.empty()) return sample;
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  sample.mean = sum / count;
  if (values.size() < 2) return sample;
  double squares = 0;
  for (const double value : values) squares += (value - sample.mean) * (value - sample.mean);
  sample.deviation = std::sqrt(squares / (count - 1));
  return sample;
}

/// For whole degrees of freedom n the distribution has a closed form (Abramowitz and Stegun 26.7.3 and 26.7.4), with
/// θ = atan(t / √n). The probability of less than |t| is
///
///   n even   sin θ (1 + 1/2 cos²θ + (1·3)/(2·4) cos⁴θ + … up to cosⁿ⁻²θ)
///   n odd    2/π (θ + sin θ (cos θ + 2/3 cos³θ + (2·4)/(3·5) cos⁵θ + … up to cosⁿ⁻²θ))
double student_p(double t, int degrees) {
  const double angle = std::atan(std::abs(t) / std::sqrt(degrees));
  const double cosine = std::cos(angle);
  const bool even = degrees % 2 == 0;
  double term = even ? 1 : cosine;
  double sum = 0;
  for (int power = even ? 0 : 1; power <= degrees - 2; power += 2) {
    sum += term;
    term *= cosine * cosine * (power + 1) / (power + 2);
  }
  const double less = even ? std::sin(angle) * sum : 2 / std::numbers::pi * (angle + std::sin(angle) * sum);
  return std::fmax(0, 1 - less);
}

PairedTest paired_test(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < first.size(); ++i) differences.push_back(first[i] - second[i]);
  const Sample sample = sample_of(differences);
  PairedTest test{.difference = sample.mean, .pairs = sample.count};
  if (test.pairs < 2) return test;
  const double error = sample.deviation / std::sqrt(static_cast<double>(test.pairs));
  if (error == 0) {  // all pairs differ by the very same: nothing, or no chance at all
    test.p = sample.mean == 0 ? 1 : 0;
    return test;
  }
  test.t = sample.mean / error;
  test.p = student_p(test.t, static_cast<int>(test.pairs) - 1);
  return test;
}

}  // namespace co2::study
