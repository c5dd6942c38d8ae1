#include "train/gpt/gpt_shape.h"

namespace co2::train {

ModelShape gpt_shape(const GptConfig& config) {
  const std::int64_t width = config.width;
  ModelShape shape;
  const auto add = [&shape](std::int64_t elements, std::optional<std::size_t> unit = {}) {
    shape.parameters.push_back({elements, unit});
  };
  const auto add_linear = [&add](std::int64_t in, std::int64_t out, std::size_t unit) {
    add(in * out, unit);
    add(out, unit);
  };
  const auto add_norm = [&] {
    add(width);
    add(width);
  };
  add(config.vocabulary * width);
  add(config.context * width);
  std::size_t unit = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    add_norm();
    add_linear(width, 3 * width, unit);
    add_linear(width, width, unit++);
    add_norm();
    add_linear(width, 4 * width, unit);
    add_linear(4 * width, width, unit++);
  }
  add_norm();
  return shape;
}

}  // namespace co2::train
