#include "sync/since_launch.h"

#include <algorithm>

#include "sync/visiting.h"

namespace co2 {

void SinceLaunch::add_step(double more_samples, const std::vector<double>& rates_now) {
  samples += more_samples;
  steps += 1;
  unsent_steps += 1;
  rates.resize(rates_now.size());
  for (std::size_t g = 0; g < rates.size(); ++g) rates[g] += rates_now[g];
}

void SinceLaunch::add(const SinceLaunch& other, double share) {
  samples += share * other.samples;
  steps += share * other.steps;
  unsent_steps += share * other.unsent_steps;
  rates.resize(std::max(rates.size(), other.rates.size()));
  for (std::size_t g = 0; g < other.rates.size(); ++g) rates[g] += share * other.rates[g];
}

void SinceLaunch::restart(bool sent) {
  samples = 0;
  steps = 0;
  if (!sent) return;
  unsent_steps = 0;
  rates.clear();
}

void SinceLaunch::visit(StateVisitor& visitor, const std::string& name, std::size_t groups) {
  visit_amount(visitor, name + "/samples", samples);
  visit_amount(visitor, name + "/steps", steps);
  visit_amount(visitor, name + "/unsent_steps", unsent_steps);
  co2::visit(visitor, name + "/rates", rates, groups);
}

}  // namespace co2
