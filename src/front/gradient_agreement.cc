#include "front/gradient_agreement.h"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>

#include "front/optimizer_state.h"
#include "sync/visiting.h"

namespace co2 {
namespace {

constexpr int kCoordinates = 512;  // in all, of all places
constexpr int kFewest = 32;        // of a place
constexpr double kMemory = 0.95;   // of one sample at the next
constexpr double kExponent = 1.5;  // this and the next: docs/choosing-local-steps.md has the measurements
constexpr double kDoublesIn = 64;  // looks: the factor may

/// A few elements of a tensor. Most models have many tensors: reading them one by one spares hundreds of operators.
std::vector<double> elements_of(const at::Tensor& tensor, const std::vector<std::int64_t>& where) {
  std::vector<double> values(where.size());
  if (tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous()) {
    const float* const all = tensor.const_data_ptr<float>();
    std::transform(where.begin(), where.end(), values.begin(), [&](std::int64_t i) { return all[i]; });
  } else {
    const at::Tensor places = at::tensor(where, at::kLong).to(tensor.device());
    const at::Tensor some = tensor.flatten().index_select(0, places).to(at::kCPU, at::kDouble);
    std::copy_n(some.const_data_ptr<double>(), values.size(), values.begin());
  }
  return values;
}

/// A few coordinates of a gradient, divided as Adam does.
std::vector<double> divided(const at::Tensor& gradient, const at::Tensor& second_moment, double beta2,
                            const std::vector<std::int64_t>& where) {
  std::vector<double> values = elements_of(gradient, where);
  const std::vector<double> squares = elements_of(second_moment, where);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // With this step's own square in it, as in Adam: no coordinate is larger than 1 / √(1 - β2).
    const double root = std::sqrt(beta2 * squares[i] + (1 - beta2) * values[i] * values[i]);
    values[i] = root > 0 || std::isnan(root) ? values[i] / root : 0;
  }
  return values;
}

}  // namespace

bool GradientAgreement::matters(const Recipe& recipe, const torch::optim::Optimizer& optimizer) {
  const bool adam = dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr ||
                    dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr;
  return adam && recipe.exchange == Recipe::Exchange::kProgress && recipe.restart == Restart::kKeep;
}

GradientAgreement::GradientAgreement(int place, int places, int islands)
    : place_(place),
      places_(places),
      islands_(islands),
      coordinates_(static_cast<std::size_t>(std::max(kCoordinates / places, kFewest))) {}

std::size_t GradientAgreement::width() const { return of_place() * static_cast<std::size_t>(places_); }

std::vector<double> GradientAgreement::sample(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<double> numbers(width(), 0.0);
  std::int64_t elements = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) elements += parameter.numel();
  }
  double* mine = numbers.data() + of_place() * static_cast<std::size_t>(place_);
  const auto wanted = static_cast<std::int64_t>(coordinates_);
  std::int64_t begin = 0, next = 0;  // coordinate k is element (2k + 1) / (2 · wanted) of all of them
  const auto element = [&](std::int64_t k) { return static_cast<std::int64_t>((k + 0.5) / wanted * elements); };
  bool seen = false;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      std::vector<std::int64_t> places;
      const std::int64_t first = next;
      for (; next < wanted && element(next) < begin + parameter.numel(); ++next) {
        places.push_back(element(next) - begin);
      }
      begin += parameter.numel();
      const at::Tensor squares = second_moment_of(optimizer, parameter);
      if (places.empty() || !parameter.grad().defined() || !squares.defined()) continue;
      std::ranges::copy(divided(parameter.grad(), squares, second_moment_decay(group), places), mine + first);
      seen = true;
    }
  }
  double squares = 0;
  for (std::size_t i = 0; i < coordinates_; ++i) squares += mine[i] * mine[i];
  if (!seen || !std::isfinite(squares)) return std::vector<double>(width(), 0.0);
  mine[coordinates_] = squares;
  mine[coordinates_ + 1] = 1;
  return numbers;
}

void GradientAgreement::take(std::span<const double> sums) {
  double mean_of_squares = 0, square_of_mean = 0;
  bool compared = false;
  for (auto rest = sums; !rest.empty(); rest = rest.subspan(of_place())) {
    const double shown = rest[coordinates_ + 1];
    if (shown < 2) continue;  // a worker alone agrees with itself
    compared = true;
    mean_of_squares += rest[coordinates_] / shown;
    for (const double sum : rest.first(coordinates_)) square_of_mean += sum * sum / (shown * shown);
  }
  if (!compared) return;
  ++looks_;
  mean_of_squares_ = kMemory * mean_of_squares_ + mean_of_squares;
  square_of_mean_ = kMemory * square_of_mean_ + square_of_mean;
}

double GradientAgreement::shortening() const {
  if (mean_of_squares_ == 0) return 1;
  if (square_of_mean_ == 0) return most();
  return std::clamp(std::sqrt(mean_of_squares_ / square_of_mean_), 1.0, most());
}

double GradientAgreement::rate_factor() const {
  const double so_far = std::exp2(static_cast<double>(looks_) / kDoublesIn);
  return std::min({std::pow(shortening(), kExponent), most(), so_far});
}

double GradientAgreement::most() const { return std::sqrt(static_cast<double>(islands_)); }

void GradientAgreement::visit(StateVisitor& visitor, const std::string& name) {
  visit_amount(visitor, name + "/mean_of_squares", mean_of_squares_);
  visit_amount(visitor, name + "/square_of_mean", square_of_mean_);
  visit_counter(visitor, name + "/looks", looks_);
}

}  // namespace co2
