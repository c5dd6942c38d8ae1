#include "outer/reference.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace co2::outer::reference {
namespace {

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

}  // namespace

State State::random(std::int64_t size, at::ScalarType dtype, std::int64_t offset) {
  const at::Generator generator = at::detail::createCPUGenerator(1 + static_cast<std::uint64_t>(size));
  const auto tensor = [&](double scale) {
    return at::randn({size + offset}, generator, at::TensorOptions().dtype(dtype)).mul_(scale).slice(0, offset);
  };
  return {tensor(0.1), tensor(1.0), tensor(2.0), tensor(0.05), tensor(2.0)};
}

at::Tensor copy_at_offset(const at::Tensor& tensor, at::ScalarType dtype) {
  const std::int64_t offset = tensor.storage_offset();
  return at::empty({offset + tensor.numel()}, tensor.options().dtype(dtype)).slice(0, offset).copy_(tensor);
}

State State::clone() const {
  const auto copy = [](const at::Tensor& tensor) { return copy_at_offset(tensor, tensor.scalar_type()); };
  return {copy(sum), copy(momentum), copy(consensus), copy(sent), copy(live)};
}

Result apply(const State& state, const Move& move) {
  const auto sum = values(state.sum);
  const auto momentum = values(state.momentum);
  const auto consensus = values(state.consensus);
  const auto sent = values(state.sent);
  const auto live = values(state.live);
  Result result;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double g = move.progress_scale * sum[i];
    const double before = move.momentum * momentum[i] + g;
    result.momentum_squared_norm += before * before;
    double m = move.momentum_scale * before;
    const double m_scale = move.momentum_scale * (move.momentum * std::abs(momentum[i]) + std::abs(g));
    if (move.clip > 0) {
      const double whole = m;
      m = std::clamp(m, -move.clip, move.clip);
      result.clipped_squared_norm += (whole - m) * (whole - m);
    }
    result.momentum.push_back({m, m_scale});

    const double step = move.rate * (move.nesterov ? g + move.momentum * m : m);
    const double step_scale = move.rate * (move.nesterov ? std::abs(g) + move.momentum * m_scale : m_scale);
    result.move_squared_norm += step * step;
    const double x = consensus[i] - step;
    const double x_scale = std::abs(consensus[i]) + step_scale;
    result.consensus.push_back({x, x_scale});

    switch (move.restart) {
      case Restart::kPaper: result.live.push_back({x, x_scale}); break;
      case Restart::kKeep:
        result.live.push_back({live[i] + sent[i] - step, std::abs(live[i]) + std::abs(sent[i]) + step_scale});
        break;
      case Restart::kMix:
        result.live.push_back({(1 - move.mix) * x + move.mix * live[i], x_scale + std::abs(live[i])});
        break;
    }
  }
  return result;
}

double distance_in_ulps(const at::Tensor& actual, const std::vector<Element>& expected) {
  const double ulp = actual.scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                        : std::numeric_limits<double>::epsilon();
  const auto got = values(actual);
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i].value) continue;
    const double distance = std::abs(got[i] - expected[i].value) / (ulp * expected[i].scale);
    if (!(distance <= largest)) largest = distance;
  }
  return largest;
}

}  // namespace co2::outer::reference
