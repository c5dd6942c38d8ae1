// What the outer pass reads from and writes to a wire of bfloat16.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "outer/fused.h"
#include "outer/outer_pass.h"
#include "outer/reference.h"

namespace co2::outer {
namespace {

using reference::copy_at_offset;
using reference::State;

const std::int64_t kSizes[] = {0, 1, 3, 1023, 1025, (1 << 21) + 5};

// The launch of one kernel with weight 1 and a consensus of 0: rounds -live.
at::Tensor rounded(const Kernel& kernel, const at::Tensor& values) {
  const at::Tensor live = -values;
  const at::Tensor wire = at::empty(values.sizes(), at::kBFloat16);
  fused::launch(kernel, at::zeros_like(live).const_data_ptr<float>(), live.const_data_ptr<float>(), 1.0f,
                static_cast<Bfloat16*>(wire.mutable_data_ptr()), nullptr, values.numel());
  return wire;
}

// Every upper half that a finite number can have (but for both zeros and their neighbours), with lower halves around
// the tie, where rounding goes one way or the other: each is written out here from the definition.
TEST(Bfloat16, RoundsToNearestTiesToEven) {
  std::vector<float> values;
  std::vector<std::uint16_t> expected;
  for (std::uint32_t half = 1; half < 0x7f80; ++half) {
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      for (const std::uint32_t rest : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        values.push_back(std::bit_cast<float>((sign | half) << 16 | rest));
        const bool up = rest > 0x8000 || (rest == 0x8000 && half % 2 == 1);
        expected.push_back(static_cast<std::uint16_t>((sign | half) + (up ? 1 : 0)));  // past the last one: infinity
      }
    }
  }
  const at::Tensor input = at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat);
  for (const Kernel* kernel : supported_kernels()) {
    const at::Tensor wire = rounded(*kernel, input);
    const auto* bits = static_cast<const std::uint16_t*>(wire.const_data_ptr());
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) wrong += bits[i] != expected[i];
    EXPECT_EQ(wrong, 0) << kernel->name;
  }
}

// The bits of some NaNs would round to infinity (0x7f800001) or carry into the sign (0x7fffffff).
TEST(Bfloat16, NanAndInfinityStayWhatTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Kernel* kernel : supported_kernels()) {
    for (const std::uint32_t nan : {0x7f800001u, 0x7f808000u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
      const at::Tensor values = at::ones({37});  // whole vectors, and left-over elements
      for (const int at : {0, 5, 36}) values[at] = std::bit_cast<float>(nan);
      values[6] = infinity;
      values[35] = -infinity;
      const at::Tensor wire = rounded(*kernel, values);
      EXPECT_EQ(wire.isnan().sum().item<int>(), 3) << kernel->name << " " << nan;
      for (const int at : {0, 5, 36}) EXPECT_TRUE(wire[at].isnan().item<bool>());
      EXPECT_EQ(wire[6].item<float>(), infinity);
      EXPECT_EQ(wire[35].item<float>(), -infinity);
      EXPECT_EQ(wire[7].item<float>(), 1);
    }
  }
}

TEST(Bfloat16, LaunchEqualsTheOperatorsBitForBit) {
  for (const double weight : {1.7, 1200.0, 4097.0}) {
    for (const std::int64_t size : kSizes) {
      for (const std::int64_t offset : {0, 1}) {
        const State state = State::random(size, at::kFloat, offset);
        const at::Tensor wire = copy_at_offset(state.sum, at::kBFloat16);
        const at::Tensor expected_wire = at::empty_like(wire);
        const at::Tensor expected_sent = at::empty_like(state.sent);
        with_operators::launch(state.consensus, state.live, weight, expected_wire, expected_sent);
        launch(state.consensus, state.live, weight, wire, state.sent);
        EXPECT_TRUE(at::equal(wire, expected_wire));
        EXPECT_TRUE(at::equal(state.sent, expected_sent));
        EXPECT_TRUE(at::equal(state.sent, wire.to(at::kFloat) / weight));

        wire.zero_();
        launch(state.consensus, state.live, weight, wire, {});
        EXPECT_TRUE(at::equal(wire, expected_wire));
      }
    }
  }
}

// What is sent, all of it, and what rounding has left; who does not keep what was sent does not ask for the latter.
TEST(Bfloat16, LaunchTellsWhatRoundingLeft) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t size : kSizes) {
      const State state = State::random(size, dtype, 1);
      const at::Tensor wire = copy_at_offset(state.sum, at::kBFloat16);
      const LaunchNorms norms = launch(state.consensus, state.live, 1.7, wire, state.sent);
      const auto squared = [](const at::Tensor& t) { return t.to(at::kDouble).square().sum().item<double>(); };
      const at::Tensor progress = state.consensus - state.live;
      EXPECT_NEAR(norms.sent, squared(state.sent), 1e-6 * norms.sent);
      EXPECT_NEAR(norms.progress, squared(progress), 1e-6 * norms.progress);
      EXPECT_NEAR(norms.left, squared(progress - state.sent), 1e-6 * norms.left);
      if (size > 3) {
        EXPECT_GT(norms.left, 0);
      }
      const LaunchNorms of_operators = with_operators::launch(state.consensus, state.live, 1.7, wire, state.sent);
      EXPECT_NEAR(of_operators.sent, norms.sent, 1e-6 * norms.sent);
      EXPECT_NEAR(of_operators.progress, norms.progress, 1e-6 * norms.progress);
      EXPECT_NEAR(of_operators.left, norms.left, 1e-6 * norms.left);
      for (const LaunchNorms& other : {launch(state.consensus, state.live, 1.7, wire, {}),
                                       with_operators::launch(state.consensus, state.live, 1.7, wire, {})}) {
        EXPECT_NEAR(other.sent, norms.sent, 1e-6 * norms.sent);
        EXPECT_EQ(other.progress, other.sent);
        EXPECT_EQ(other.left, 0);
      }
    }
  }
}

TEST(Bfloat16, LaunchOfFloat64) {
  const State state = State::random(1025, at::kDouble);
  const at::Tensor wire = at::empty({1025}, at::kBFloat16);
  launch(state.consensus, state.live, 3, wire, state.sent);
  EXPECT_TRUE(at::equal(wire, (3 * (state.consensus - state.live)).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(state.sent, wire.to(at::kDouble) / 3));
}

// A sum of bfloat16 is the same numbers as a sum of floats that happen to fit into bfloat16.
TEST(Bfloat16, ApplyAndNormsEqualThoseOfTheSameFloats) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Restart restart : {Restart::kPaper, Restart::kKeep, Restart::kMix}) {
      for (const bool nesterov : {false, true}) {
        for (const std::int64_t size : kSizes) {
          if (dtype == at::kDouble && size > 1025) continue;
          const State state = State::random(size, dtype, 1);
          const at::Tensor sum = copy_at_offset(state.sum, at::kBFloat16);
          state.sum.copy_(sum);
          const State other = state.clone();
          const Move move = reference::some_move(restart, nesterov);
          EXPECT_EQ(next_momentum_squared_norm(sum, state.momentum, move),
                    next_momentum_squared_norm(other.sum, state.momentum, move));
          const double norm = apply(sum, state.momentum, state.consensus, state.sent, state.live, move, true).move;
          const double expected =
              apply(other.sum, other.momentum, other.consensus, other.sent, other.live, move, true).move;
          EXPECT_EQ(norm, expected);
          EXPECT_TRUE(at::equal(state.momentum, other.momentum));
          EXPECT_TRUE(at::equal(state.consensus, other.consensus));
          EXPECT_TRUE(at::equal(state.live, other.live));
          const double wide = squared_norm(other.sum);
          EXPECT_NEAR(squared_norm(sum), wide, dtype == at::kFloat ? 0 : 1e-13 * wide);
        }
      }
    }
  }
}

TEST(Bfloat16, OnlyWhatIsOnTheWireMayBe) {
  const State state = State::random(8);
  const at::Tensor wire = at::empty({8}, at::kBFloat16);
  EXPECT_THROW(launch(state.consensus, wire, 1, state.sum, {}), c10::Error);
  EXPECT_THROW(launch(state.consensus, state.live, 1, wire, wire.clone()), c10::Error);
  EXPECT_THROW(launch(state.consensus, state.live, 1, at::empty({8}, at::kHalf), {}), c10::Error);
  EXPECT_THROW(apply(state.sum, wire, state.consensus, {}, state.live, {}, false), c10::Error);
}

}  // namespace
}  // namespace co2::outer
