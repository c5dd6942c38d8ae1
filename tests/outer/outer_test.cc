#include "outer/outer_pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "outer/reference.h"

namespace co2::outer {
namespace {

using reference::distance_in_ulps;
using reference::State;

// Not zero: the scalars become float32, and every product and sum is rounded. On the longest way, to `live` with
// Nesterov and mix, these are 16 roundings of half a unit each, of terms that only partly have the full scale.
constexpr double kUlps = 4;

const std::int64_t kSizes[] = {0, 1, 3, 1023, 1025, (1 << 16) + 7};

// Restart, Nesterov, clip, norm, size.
class Apply : public testing::TestWithParam<std::tuple<Restart, bool, bool, bool, std::int64_t>> {
 protected:
  Move move() const {
    Move result = reference::some_move(std::get<0>(GetParam()), std::get<1>(GetParam()));
    if (!std::get<2>(GetParam())) result.clip = 0;
    return result;
  }
  bool norm() const { return std::get<3>(GetParam()); }
  std::int64_t size() const { return std::get<4>(GetParam()); }

  ApplyNorms run(const State& state) const {
    return apply(state.sum, state.momentum, state.consensus, state.sent, state.live, move(), norm());
  }
  ApplyNorms run_operators(const State& state) const {
    return with_operators::apply(state.sum, state.momentum, state.consensus, state.sent, state.live, move(), norm());
  }

  void expect_close(const State& state, const ApplyNorms& norms, const reference::Result& expected) const {
    EXPECT_LE(distance_in_ulps(state.momentum, expected.momentum), kUlps);
    EXPECT_LE(distance_in_ulps(state.consensus, expected.consensus), kUlps);
    EXPECT_LE(distance_in_ulps(state.live, expected.live), kUlps);
    // Errors of single elements have either sign and cancel; the sum itself is in double precision.
    EXPECT_NEAR(norms.move, norm() ? expected.move_squared_norm : 0, 1e-6 * expected.move_squared_norm);
    const bool clips = move().clip > 0;
    EXPECT_NEAR(norms.clipped, clips ? expected.clipped_squared_norm : 0, 1e-6 * expected.clipped_squared_norm);
    const double whole = move().momentum_scale * move().momentum_scale * expected.momentum_squared_norm;
    EXPECT_NEAR(norms.momentum, clips ? whole : 0, 1e-6 * whole);
  }
};

TEST_P(Apply, FollowsTheEquationsInFloat32) {
  const State before = State::random(size());
  const State state = before.clone();
  const ApplyNorms norms = run(state);
  expect_close(state, norms, reference::apply(before, move()));
  EXPECT_TRUE(at::equal(state.sum, before.sum));
  EXPECT_TRUE(at::equal(state.sent, before.sent));
}

// Not equal bit by bit: LibTorch's add with a factor is a fused multiply-add where the CPU has it, and lerp_ arranges
// its terms in another way.
TEST_P(Apply, AgreesWithTheOperators) {
  const State fused = State::random(size());
  const State chain = fused.clone();
  const double fused_norm = run(fused).move;
  const double chain_norm = run_operators(chain).move;
  reference::Result bound = reference::apply(State::random(size()), move());
  const auto compare = [](const at::Tensor& actual, const at::Tensor& other, std::vector<reference::Element>& scales) {
    const at::Tensor wide = other.to(at::kDouble);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i].value = wide.const_data_ptr<double>()[i];
    return distance_in_ulps(actual, scales);
  };
  EXPECT_LE(compare(fused.momentum, chain.momentum, bound.momentum), 2);
  EXPECT_LE(compare(fused.consensus, chain.consensus, bound.consensus), 2);
  EXPECT_LE(compare(fused.live, chain.live, bound.live), 2);
  EXPECT_NEAR(fused_norm, chain_norm, 2e-6 * chain_norm);
}

TEST_P(Apply, FollowsTheEquationsInFloat64) {
  const State before = State::random(size(), at::kDouble);
  const State state = before.clone();
  const ApplyNorms norms = run(state);
  expect_close(state, norms, reference::apply(before, move()));
}

std::string test_name(const testing::TestParamInfo<Apply::ParamType>& info) {
  const auto [restart, nesterov, clip, norm, size] = info.param;
  const char* restarts[] = {"Paper", "Keep", "Mix"};
  return std::string(restarts[static_cast<int>(restart)]) + (nesterov ? "Nesterov" : "HeavyBall") +
         (clip ? "Clip" : "") + (norm ? "Norm" : "") + std::to_string(size);
}

INSTANTIATE_TEST_SUITE_P(AllVariants, Apply,
                         testing::Combine(testing::Values(Restart::kPaper, Restart::kKeep, Restart::kMix),
                                          testing::Bool(), testing::Bool(), testing::Bool(), testing::ValuesIn(kSizes)),
                         test_name);

TEST(OuterPass, PlainAverageIsExact) {
  const State before = State::random(1025);
  const State state = before.clone();
  const Move move = {.progress_scale = 0.25, .restart = Restart::kPaper};
  apply(state.sum, state.momentum, state.consensus, {}, state.live, move, false);
  const at::Tensor expected = before.consensus - before.sum * 0.25;
  EXPECT_TRUE(at::equal(state.consensus, expected));
  EXPECT_TRUE(at::equal(state.live, expected));
}

// A momentum that is 0 and is forgotten need not be there at all.
TEST(OuterPass, MomentumMayBeLeftOut) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Restart restart : {Restart::kPaper, Restart::kKeep, Restart::kMix}) {
      for (const std::int64_t size : kSizes) {
        const State with = State::random(size, dtype);
        with.momentum.zero_();
        if (size > 0) {  // whose signs momentum does away with
          with.sum[0] = -0.0;
          with.consensus[0] = -0.0;
        }
        const State without = with.clone();
        const Move move = {.progress_scale = 3.7, .momentum_scale = 0.9, .rate = 0.02, .restart = restart, .mix = 0.3};
        const double next = next_momentum_squared_norm(with.sum, with.momentum, move);
        EXPECT_NEAR(next_momentum_squared_norm(without.sum, {}, move), next, 1e-6 * next);
        for (const bool norm : {false, true}) {
          const double expected = apply(with.sum, with.momentum, with.consensus, with.sent, with.live, move, norm).move;
          EXPECT_EQ(apply(without.sum, {}, without.consensus, without.sent, without.live, move, norm).move, expected);
          const auto bits = dtype == at::kFloat ? at::kInt : at::kLong;
          EXPECT_TRUE(at::equal(without.consensus.view(bits), with.consensus.view(bits)));
          EXPECT_TRUE(at::equal(without.live.view(bits), with.live.view(bits)));
        }
      }
    }
  }
  const State s = State::random(8);
  for (const Move& move : {Move{.momentum = 0.1}, Move{.clip = 1}, Move{.nesterov = true}}) {
    EXPECT_THROW(apply(s.sum, {}, s.consensus, s.sent, s.live, move, false), c10::Error);
  }
}

// The authors' public code computes the clip out of place and throws it away.
TEST(OuterPass, ClipHoldsForTheStoredMomentumAndTheMove) {
  const State before = State::random(1025);
  const State state = before.clone();
  const Move move = {.progress_scale = 100, .clip = 0.5, .restart = Restart::kPaper};
  apply(state.sum, state.momentum, state.consensus, {}, state.live, move, false);
  EXPECT_EQ(state.momentum.max().item<float>(), 0.5f);
  EXPECT_EQ(state.momentum.min().item<float>(), -0.5f);
  EXPECT_TRUE(at::equal(state.consensus, before.consensus - state.momentum));
}

TEST(OuterPass, NanStaysVisible) {
  const std::int64_t size = 1025;
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{500}, size - 1}) {  // whole vectors, and the rest
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const State state = State::random(size, dtype);
      state.sum[at] = std::numeric_limits<double>::quiet_NaN();
      const Move move = {.momentum = 0.5, .clip = 0.1, .restart = Restart::kKeep};
      const double norm = apply(state.sum, state.momentum, state.consensus, state.sent, state.live, move, true).move;
      EXPECT_TRUE(std::isnan(norm));
      for (const at::Tensor& tensor : {state.momentum, state.consensus, state.live}) {
        EXPECT_TRUE(tensor[at].isnan().item<bool>());
        EXPECT_EQ(tensor.isnan().sum().item<std::int64_t>(), 1);
      }
    }
  }
}

TEST(OuterPass, LaunchEqualsTheOperatorsBitForBit) {
  for (const std::int64_t size : {0, 1, 3, 1023, 1025, (1 << 21) + 5}) {
    for (const std::int64_t offset : {0, 1}) {
      const State state = State::random(size, at::kFloat, offset);
      const at::Tensor wire = at::empty_like(state.live);
      const at::Tensor expected_wire = at::empty_like(wire);
      const at::Tensor expected_sent = at::empty_like(wire);
      with_operators::launch(state.consensus, state.live, 1.7, expected_wire, expected_sent);
      launch(state.consensus, state.live, 1.7, wire, state.sent);
      EXPECT_TRUE(at::equal(wire, expected_wire));
      EXPECT_TRUE(at::equal(state.sent, expected_sent));
      EXPECT_TRUE(at::equal(expected_sent, state.consensus - state.live));

      wire.zero_();
      launch(state.consensus, state.live, 1.7, wire, {});
      EXPECT_TRUE(at::equal(wire, expected_wire));
      expected_wire.zero_();
      with_operators::launch(state.consensus, state.live, 1.7, expected_wire, {});
      EXPECT_TRUE(at::equal(wire, expected_wire));
    }
  }
}

TEST(OuterPass, Norms) {
  for (const std::int64_t size : kSizes) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const State state = State::random(size, dtype);
      const Move move = {.progress_scale = 3, .momentum = 0.25};
      const double operator_error = dtype == at::kFloat ? 2e-6 : 1e-13;  // they accumulate rows in the tensor's dtype
      const double expected = state.sum.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(squared_norm(state.sum), expected, 1e-13 * expected);
      EXPECT_NEAR(with_operators::squared_norm(state.sum), expected, operator_error * expected);
      const double next = reference::apply(state, move).momentum_squared_norm;
      EXPECT_NEAR(next_momentum_squared_norm(state.sum, state.momentum, move), next, 1e-6 * next);
      EXPECT_NEAR(with_operators::next_momentum_squared_norm(state.sum, state.momentum, move), next, 2e-6 * next);
    }
  }
}

/// The message of the c10::Error that `call` throws, without the stack trace.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(OuterPass, RefusesTensorsThatDoNotFit) {
  const State s = State::random(8);
  const auto apply_with = [&](const State& t, const Move& move) {
    return error_of([&] { apply(t.sum, t.momentum, t.consensus, t.sent, t.live, move, false); });
  };
  const Move keep = {.restart = Restart::kKeep};
  EXPECT_EQ(apply_with(s, keep), "no error");

  State t = s;
  t.sent = at::Tensor();
  EXPECT_NE(apply_with(t, keep).find("sent is undefined"), std::string::npos);
  EXPECT_EQ(apply_with(t, {}), "no error");
  t = s;
  t.sum = at::zeros({7});
  EXPECT_NE(apply_with(t, keep).find("sum has 7 elements"), std::string::npos);
  t = s;
  t.momentum = at::zeros({8}, at::kDouble);
  EXPECT_NE(apply_with(t, keep).find("momentum has 8 elements of double"), std::string::npos);
  t = s;
  t.live = at::zeros({16}).slice(0, 0, 16, 2);
  EXPECT_NE(apply_with(t, keep).find("live must be one-dimensional and contiguous"), std::string::npos);
  t = s;
  t.consensus = at::zeros({8}, at::kInt);
  EXPECT_NE(apply_with(t, keep).find("consensus must be of a floating dtype"), std::string::npos);
  EXPECT_NE(apply_with(s, {.clip = std::nan("")}).find("clip = "), std::string::npos);
  EXPECT_NE(apply_with(s, {.mix = 1.5}).find("mix = 1.5"), std::string::npos);
  EXPECT_NE(apply_with(s, {.progress_scale = 1e39}).find("progress_scale = 1e+39 overflows"), std::string::npos);
  EXPECT_NE(error_of([&] { launch(s.consensus, s.live, 1, {}, {}); }).find("wire is undefined"), std::string::npos);
}

}  // namespace
}  // namespace co2::outer
