#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace co2::study {

/// Several runs of the same thing that differ in their seeds.
struct Sample {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();  ///< with n - 1; NaN of a single one
  std::size_t count = 0;
};

Sample sample_of(const std::vector<double>& values);

/// How likely |t| or more is by chance, for Student's t with that many degrees of freedom (1 or more), on both sides.
double student_p(double t, int degrees);

/// Whether two things that were run with the same seeds, hence with the same data and first weights, differ.
struct PairedTest {
  static constexpr double kLevel = 0.05;

  double difference = 0;  ///< mean of first - second
  double t = 0;
  double p = 1;  ///< of differences at least as large, if there is none in truth
  std::size_t pairs = 0;

  bool significant() const { return pairs >= 2 && p < kLevel; }
};

/// The paired t-test, two-sided: `first` and `second` have one value per common seed, in the same order. With fewer
/// than two pairs nothing can be said: p is 1.
PairedTest paired_test(const std::vector<double>& first, const std::vector<double>& second);

}  // namespace co2::study
