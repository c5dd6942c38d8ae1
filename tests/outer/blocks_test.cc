// Blocks of few bits: docs/wire.md's format and rounding, by hand, and what is made of them.
#include "outer/blocks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "outer/fused.h"
#include "outer/outer_pass.h"
#include "outer/reference.h"

namespace co2::outer {
namespace {

using reference::State;

constexpr Wire kWires[] = {Wire::kInt8, Wire::kInt4, Wire::kInt2};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Groups and blocks with and without left-over elements, more than a chunk, and enough to store past the caches.
const std::int64_t kSizes[] = {0, 1, 15, 16, 63, 64, 65, 1000, (1 << 16) + 65, (1 << 21) + 5};

int largest_code(Wire wire) { return wire == Wire::kInt8 ? 127 : wire == Wire::kInt4 ? 7 : 1; }

/// Room for so many elements, `offset` bytes from an aligned address, full of something else.
at::Tensor room(Wire wire, std::int64_t numel, std::int64_t offset = 0) {
  return at::full({offset + blocks_for(numel) * block_bytes(wire)}, 0xa5, at::kByte).slice(0, offset);
}

/// Calls body(pointer) with the blocks as the kernels see them.
template <class Body>
auto with_blocks(const at::Tensor& blocks, Wire wire, const Body& body) {
  void* data = blocks.mutable_data_ptr();
  if (wire == Wire::kInt8) return body(static_cast<Block<8>*>(data));
  if (wire == Wire::kInt4) return body(static_cast<Block<4>*>(data));
  return body(static_cast<Block<2>*>(data));
}

struct Encoded {
  at::Tensor blocks;
  at::Tensor sent;
  double norm;
};

/// The values, as weight * (consensus - live), by one kernel.
Encoded encode_with(const Kernel& kernel, const at::Tensor& values, Wire wire, float weight = 1) {
  const at::Tensor live = at::zeros_like(values);
  Encoded result{room(wire, values.numel()), {}, 0};
  result.norm = with_blocks(result.blocks, wire, [&](auto* data) {
    return fused::launch(kernel, values.const_data_ptr<float>(), live.const_data_ptr<float>(), weight, data, nullptr,
                         values.numel())
        .sent;
  });
  result.sent = decode({result.blocks, wire, values.numel(), weight});
  return result;
}

std::vector<int> bytes_of(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<std::uint8_t>();
  return {data, data + tensor.numel()};
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.element_size() == 1 ? at::equal(a, b) : at::equal(a.view(at::kInt), b.view(at::kInt));
}

/// docs/wire.md once more, element by element. The values must fit.
struct Reference {
  std::vector<int> bytes;
  std::vector<float> values;
};
Reference reference_of(const at::Tensor& tensor, Wire wire) {
  const int q = largest_code(wire);
  const int bits = wire == Wire::kInt8 ? 8 : wire == Wire::kInt4 ? 4 : 2;
  const float* from = tensor.const_data_ptr<float>();
  Reference result;
  for (std::int64_t first = 0; first < tensor.numel(); first += 64) {
    std::vector<float> v(64, 0.0f);
    for (std::int64_t i = first; i < std::min(tensor.numel(), first + 64); ++i) v[i - first] = from[i];
    float m = 0;
    for (const float value : v) m = std::max(m, std::abs(value));
    const float wanted = m / static_cast<float>(q);
    std::uint32_t half = std::bit_cast<std::uint32_t>(wanted) >> 16;
    if (std::bit_cast<float>(half << 16) < wanted) ++half;
    if (wanted < std::ldexp(1.0f, -100)) half = 0;
    const float scale = std::bit_cast<float>(half << 16);
    result.bytes.push_back(static_cast<int>(half & 0xff));
    result.bytes.push_back(static_cast<int>(half >> 8));
    std::vector<int> codes(64, 0);
    for (int i = 0; i < 64; ++i) {
      if (half != 0) codes[i] = static_cast<int>(std::nearbyint(v[i] * (1 / scale)));
      if (first + i < tensor.numel()) result.values.push_back(static_cast<float>(codes[i]) * scale);
    }
    for (int group = 0; group < 4; ++group) {
      for (int k = 0; k < 2 * bits; ++k) {
        int byte = 0;
        for (int part = 0; part < 8 / bits; ++part) {
          byte |= (codes[16 * group + k + part * 2 * bits] & ((1 << bits) - 1)) << (part * bits);
        }
        result.bytes.push_back(byte);
      }
    }
  }
  return result;
}

// ---- The format, with bytes written by hand.

/// 64 zeros but for some.
at::Tensor block_of(const std::vector<std::pair<int, float>>& some) {
  const at::Tensor values = at::zeros({64});
  for (const auto& [i, value] : some) values[i] = value;
  return values;
}

TEST(Blocks, Int8ByHand) {
  const at::Tensor values = block_of({{0, 1}, {1, -1}, {15, 127}, {16, -127}, {63, -2}});
  std::vector<int> expected(66, 0);
  expected[1] = 0x3f, expected[0] = 0x80;  // 1.0
  expected[2] = 1, expected[3] = 0xff, expected[2 + 15] = 127, expected[2 + 16] = 0x81, expected[2 + 63] = 0xfe;
  for (const Kernel* kernel : supported_kernels()) {
    const Encoded encoded = encode_with(*kernel, values, Wire::kInt8);
    EXPECT_EQ(bytes_of(encoded.blocks), expected) << kernel->name;
    EXPECT_TRUE(at::equal(encoded.sent, values)) << kernel->name;
    EXPECT_EQ(encoded.norm, 1 + 1 + 127 * 127 * 2 + 4) << kernel->name;
  }
}

TEST(Blocks, Int4ByHand) {
  const at::Tensor values = block_of({{0, 0.5}, {8, -0.5}, {7, 3.5}, {15, -3.5}, {16, 1}, {24, 1.5}, {63, -1}});
  std::vector<int> expected(34, 0);
  expected[1] = 0x3f;                               // 0.5
  expected[2] = 0xf1;                               // 1 below, -1 above
  expected[2 + 7] = 0x97;                           // 7 and -7
  expected[2 + 8] = 0x32, expected[2 + 31] = 0xe0;  // 2 and 3; the last is an upper one
  for (const Kernel* kernel : supported_kernels()) {
    const Encoded encoded = encode_with(*kernel, values, Wire::kInt4);
    EXPECT_EQ(bytes_of(encoded.blocks), expected) << kernel->name;
    EXPECT_TRUE(at::equal(encoded.sent, values)) << kernel->name;
  }
}

TEST(Blocks, Int2ByHand) {
  const at::Tensor values = block_of({{0, 2}, {4, -2}, {8, 2}, {12, 2}, {5, 2}, {15, -2}, {16, -2}, {63, 2}});
  std::vector<int> expected(18, 0);
  expected[1] = 0x40;                                // 2.0
  expected[2] = 0b01'01'11'01;                       // of 12, 8, 4 and 0
  expected[3] = 0b00'00'01'00;                       // 5 is above 1
  expected[5] = 0b11'00'00'00;                       // 15 is above 11, 7 and 3
  expected[6] = 0b11, expected[17] = 0b01'00'00'00;  // 16 begins a group, 63 ends one
  for (const Kernel* kernel : supported_kernels()) {
    const Encoded encoded = encode_with(*kernel, values, Wire::kInt2);
    EXPECT_EQ(bytes_of(encoded.blocks), expected) << kernel->name;
    EXPECT_TRUE(at::equal(encoded.sent, values)) << kernel->name;
  }
}

TEST(Blocks, TiesGoToEven) {
  const at::Tensor values =
      block_of({{0, 127}, {1, 0.5}, {2, 1.5}, {3, 2.5}, {4, -0.5}, {5, -1.5}, {6, -2.5}, {7, 2.499f}});
  for (const Kernel* kernel : supported_kernels()) {
    const at::Tensor sent = encode_with(*kernel, values, Wire::kInt8).sent;
    const at::Tensor expected = at::zeros({64});
    const float whole[] = {127, 0, 2, 2, 0, -2, -2, 2};
    for (int i = 0; i < 8; ++i) expected[i] = whole[i];
    EXPECT_TRUE(at::equal(sent, expected)) << kernel->name;
  }
}

// 127.25 / 127 lies between 1 and the next bfloat16, 1.0078125. The nearest would be 1, whose codes don't reach 127.25.
TEST(Blocks, TheScaleIsRoundedUp) {
  for (const Kernel* kernel : supported_kernels()) {
    const Encoded encoded = encode_with(*kernel, block_of({{5, 127.25f}, {6, -127.25f}}), Wire::kInt8);
    EXPECT_EQ(bytes_of(encoded.blocks)[0], 0x81) << kernel->name;
    EXPECT_EQ(bytes_of(encoded.blocks)[2 + 5], 126);
    EXPECT_EQ(bytes_of(encoded.blocks)[2 + 6], 0x82);
  }
  // Nothing is larger than the largest code, whatever the largest value.
  for (const Wire wire : kWires) {
    for (int i = 0; i < 3000; ++i) {
      const float value = std::bit_cast<float>(0x3f800000u + 5591u * static_cast<unsigned>(i));
      const at::Tensor blocks = encode_with(fused::best_kernel(), at::full({64}, value), wire).blocks;
      const int code = with_blocks(blocks, wire, [](const auto* block) { return code_of(*block, 0); });
      ASSERT_LE(code, largest_code(wire));
      ASSERT_GE(code, wire == Wire::kInt8 ? 126 : largest_code(wire));
    }
  }
}

TEST(Blocks, FollowTheSpecificationElementByElement) {
  for (const Wire wire : kWires) {
    for (const std::int64_t size : kSizes) {
      // Blocks of very different sizes.
      const at::Tensor values = State::random(size).sum * at::pow(at::full({size}, 1.001), at::arange(size) % 30000);
      const Reference expected = reference_of(values, wire);
      for (const Kernel* kernel : supported_kernels()) {
        const Encoded encoded = encode_with(*kernel, values, wire);
        ASSERT_EQ(bytes_of(encoded.blocks), expected.bytes) << kernel->name << " " << size;
        const float* sent = encoded.sent.const_data_ptr<float>();
        ASSERT_EQ(std::vector<float>(sent, sent + size), expected.values) << kernel->name << " " << size;
        const double norm = encoded.sent.to(at::kDouble).square().sum().item<double>();
        EXPECT_NEAR(encoded.norm, norm, 1e-12 * norm);
      }
      const Wired wired(encode_with(fused::best_kernel(), values, wire).blocks, wire, size);
      const at::Tensor decoded = decode(wired);
      ASSERT_EQ(decoded.numel(), size);
      EXPECT_EQ(std::vector<float>(decoded.const_data_ptr<float>(), decoded.const_data_ptr<float>() + size),
                expected.values);
    }
  }
}

TEST(Blocks, WhatIsTooSmallIsZero) {
  for (const Wire wire : kWires) {
    const float limit = std::ldexp(static_cast<float>(largest_code(wire)), -100);
    for (const Kernel* kernel : supported_kernels()) {
      const Encoded at_limit = encode_with(*kernel, block_of({{3, limit}}), wire);
      EXPECT_EQ(at_limit.sent[3].item<float>(), limit);
      const Encoded below = encode_with(*kernel, at::full({64}, std::nextafter(limit, 0.0f)), wire);
      EXPECT_EQ(bytes_of(below.blocks), std::vector<int>(block_bytes(wire), 0)) << kernel->name;
      EXPECT_EQ(below.sent.abs().max().item<float>(), 0);
      EXPECT_EQ(below.norm, 0);
    }
  }
}

TEST(Blocks, WhatIsNotFiniteMakesTheNormNan) {
  for (const Wire wire : kWires) {
    const float limit = std::ldexp(static_cast<float>(largest_code(wire)), 120);
    const float too_large = std::nextafter(limit, kInfinity);
    for (const Kernel* kernel : supported_kernels()) {
      EXPECT_EQ(encode_with(*kernel, block_of({{3, -limit}}), wire).sent[3].item<float>(), -limit);
      for (const float bad : {kNan, -kNan, std::bit_cast<float>(0x7f800001u), kInfinity, -kInfinity, too_large}) {
        for (const int at : {0, 31, 63, 64, 80, 99}) {  // in a whole block and in the last one, of 36
          const at::Tensor values = at::ones({100});
          values[at] = bad;
          values[99 - at] = 3;  // NaN is the larger one, wherever it is
          const Encoded encoded = encode_with(*kernel, values, wire);
          EXPECT_TRUE(std::isnan(encoded.norm)) << kernel->name << " " << bad << " at " << at;
          const std::int64_t block = at / 64;
          const at::Tensor bytes = encoded.blocks.view({2, -1});
          EXPECT_EQ(bytes[block].count_nonzero().item<int>(), 0);
          EXPECT_NE(bytes[1 - block].count_nonzero().item<int>(), 0);
          EXPECT_EQ(encoded.sent.narrow(0, 64 * block, block == 0 ? 64 : 36).count_nonzero().item<int>(), 0);
        }
      }
    }
  }
}

// ---- The worker's launch.

TEST(Blocks, EncodeEqualsTheOperatorsByteForByte) {
  for (const Wire wire : kWires) {
    for (const double weight : {1.0, 1.7, 1200.0}) {
      for (const std::int64_t size : kSizes) {
        for (const std::int64_t offset : {0, 1}) {
          if (size > 1 << 20 && (weight != 1.7 || offset > 0)) continue;  // takes long
          const State state = State::random(size, at::kFloat, offset);
          const at::Tensor expected = room(wire, size);
          const LaunchNorms of_operators = with_operators::encode(state.consensus, state.live, weight, wire, expected);
          const at::Tensor blocks = room(wire, size, offset);
          const LaunchNorms norms = encode(state.consensus, state.live, weight, wire, blocks);
          ASSERT_TRUE(at::equal(blocks, expected));
          const at::Tensor progress = at::sub(state.consensus, state.live).to(at::kDouble);
          const double all = progress.square().sum().item<double>();
          const double stays = (progress - decode({blocks, wire, size, weight})).square().sum().item<double>();
          for (const LaunchNorms& seen : {norms, of_operators}) {
            EXPECT_NEAR(seen.sent, norms.sent, 2e-6 * norms.sent);
            EXPECT_NEAR(seen.progress, all, 2e-6 * all);
            EXPECT_NEAR(seen.left, stays, 1e-3 * stays);  // a difference of numbers that are up to 127 times as large
          }
          const at::Tensor sent = decode({blocks, wire, size, weight});
          EXPECT_TRUE(at::allclose(sent, decode({blocks, wire, size}) / weight, 2e-7, 0));
          EXPECT_NEAR(norms.sent, sent.to(at::kDouble).square().sum().item<double>(), 2e-6 * norms.sent);
        }
      }
    }
  }
}

// What is sent and what stays with the worker (live moves by the sent part) make up the progress, exactly where float32
// allows it; and what stays is at most half a code, and so becomes no larger from round to round.
TEST(Blocks, WhatIsNotSentStays) {
  for (const Wire wire : kWires) {
    const State state = State::random(1000);
    const at::Tensor progress = at::sub(state.consensus, state.live);
    const at::Tensor blocks = room(wire, 1000);
    encode(state.consensus, state.live, 1, wire, blocks);
    const at::Tensor sent = decode({blocks, wire, 1000});
    const at::Tensor stays = progress - sent;
    EXPECT_TRUE(at::allclose(stays + sent, progress, 1e-6, 1e-6));
    const at::Tensor largest = at::constant_pad_nd(progress, {0, 24}).view({-1, 64}).abs().amax(1, true);
    const at::Tensor half = (largest / largest_code(wire) * (1 + 0x1p-7) / 2).expand({-1, 64}).reshape({-1});
    EXPECT_TRUE(stays.abs().le(half.narrow(0, 0, 1000) * 1.00001).all().item<bool>());
    EXPECT_GT(stays.abs().max().item<float>(), 0);
  }
}

TEST(Blocks, EncodeOfFloat64) {
  for (const Wire wire : kWires) {
    const State state = State::random(1025, at::kDouble);
    const at::Tensor blocks = room(wire, 1025);
    const double norm = encode(state.consensus, state.live, 3, wire, blocks).sent;
    const at::Tensor sent = decode({blocks, wire, 1025, 3}, at::kDouble);
    EXPECT_EQ(bytes_of(blocks), reference_of((3 * (state.consensus - state.live)).to(at::kFloat), wire).bytes);
    EXPECT_TRUE(at::allclose(sent, decode({blocks, wire, 1025}, at::kDouble) / 3, 1e-15, 0));
    EXPECT_NEAR(norm, sent.square().sum().item<double>(), 1e-12 * norm);
    state.live[700] = kInfinity;
    EXPECT_TRUE(std::isnan(encode(state.consensus, state.live, 3, wire, blocks).sent));
    EXPECT_TRUE(decode({blocks, wire, 1025, 3}).isfinite().all().item<bool>());
  }
}

// ---- The owner's stage.

/// What some workers send to an owner, each with values of its own.
std::vector<at::Tensor> parts_of(Wire wire, std::int64_t blocks, std::int64_t numel, int workers, std::uint64_t seed) {
  at::manual_seed(seed);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < workers; ++i) {
    const at::Tensor values = at::constant_pad_nd(at::randn({numel}) * (1 + i), {0, blocks * kBlock - numel});
    parts.push_back(encode_with(fused::best_kernel(), values, wire).blocks);
  }
  return parts;
}

TEST(Blocks, AddUpFollowsItsEquations) {
  const std::int64_t size = 1000;
  for (const Wire wire : kWires) {
    for (const int workers : {1, 2, 5}) {
      const std::vector<at::Tensor> parts = parts_of(wire, 16, size, workers, 1);
      const at::Tensor before = at::randn({size}) * 0.01;
      at::Tensor sum = decode({parts[0], wire, size});
      for (int i = 1; i < workers; ++i) sum = sum + decode({parts[i], wire, size});
      sum = sum + before * 3.7;
      const at::Tensor rest = before.clone();
      const at::Tensor out = room(wire, size);
      EXPECT_EQ(add_up(parts, wire, 3.7, rest, out), 0);
      EXPECT_EQ(bytes_of(out), reference_of(sum, wire).bytes);
      EXPECT_TRUE(same_bits(rest, (sum - decode({out, wire, size})) * (1 / 3.7)));
    }
  }
}

TEST(Blocks, AddUpEqualsTheOperatorsByteForByte) {
  for (const Wire wire : kWires) {
    for (const std::int64_t size : kSizes) {
      if (size > 1 << 20) continue;  // takes long
      // As many blocks as it takes, and more of them than the owner has elements.
      for (const std::int64_t blocks : {blocks_for(size), blocks_for(size) + 3}) {
        const std::vector<at::Tensor> parts = parts_of(wire, blocks, size, 3, 2);
        const at::Tensor before = at::randn({size + 1}).slice(0, 1) * 0.01;
        const at::Tensor rest = at::empty({size + 1}).slice(0, 1).copy_(before);
        const at::Tensor expected_rest = before.clone();
        const at::Tensor out = room(wire, blocks * kBlock, 1);
        const at::Tensor expected = room(wire, blocks * kBlock);
        EXPECT_EQ(with_operators::add_up(parts, wire, 11.1, expected_rest, expected), 0);
        EXPECT_EQ(add_up(parts, wire, 11.1, rest, out), 0);
        ASSERT_TRUE(at::equal(out, expected));
        ASSERT_TRUE(at::equal(rest, expected_rest));
      }
    }
  }
}

// Nothing is lost: what went out in all rounds, and what is left, is what came in.
TEST(Blocks, AddUpLosesNothingOverManyRounds) {
  const std::int64_t size = 200;
  const double weight = 5;
  for (const Wire wire : kWires) {
    at::Tensor in = at::zeros({size}, at::kDouble);
    at::Tensor sent = at::zeros({size}, at::kDouble);
    const at::Tensor rest = at::zeros({size});
    const at::Tensor out = room(wire, size);
    for (int round = 0; round < 300; ++round) {
      const std::vector<at::Tensor> parts = parts_of(wire, blocks_for(size), size, 3, 10 + round);
      for (const at::Tensor& part : parts) in += decode({part, wire, size}, at::kDouble);
      ASSERT_EQ(add_up(parts, wire, weight, rest, out), 0);
      sent += decode({out, wire, size}, at::kDouble);
    }
    const double difference = (sent + weight * rest.to(at::kDouble) - in).abs().max().item<double>();
    // What float32 rounds off in all rounds together is less than what a single one leaves behind.
    EXPECT_LT(difference, 1e-3);
    EXPECT_GT(rest.abs().max().item<float>(), wire == Wire::kInt8 ? 0.005f : 0.1f);
  }
}

TEST(Blocks, AddUpOfNobodySendsNothingAndKeepsTheRest) {
  for (const Wire wire : kWires) {
    const std::vector<at::Tensor> parts = parts_of(wire, 2, 100, 2, 3);
    const at::Tensor rest = at::ones({100});
    const at::Tensor out = room(wire, 100);
    EXPECT_EQ(add_up(parts, wire, 0, rest, out), 0);
    EXPECT_EQ(out.count_nonzero().item<int>(), 0);
    EXPECT_TRUE(at::equal(rest, at::ones({100})));
  }
}

TEST(Blocks, AddUpLeavesOutWhatOverflows) {
  for (const Wire wire : kWires) {
    // Each of them fits, and their sum does not.
    const at::Tensor values = at::ones({200});
    values[70] = std::ldexp(static_cast<float>(largest_code(wire)), 120);
    values[199] = values[70];
    const at::Tensor part = encode_with(fused::best_kernel(), values, wire).blocks;
    const at::Tensor expected = room(wire, 200);
    const at::Tensor expected_rest = at::full({200}, 0.25);
    EXPECT_EQ(with_operators::add_up({part, part}, wire, 2, expected_rest, expected), 2);
    const at::Tensor rest = at::full({200}, 0.25);
    const at::Tensor out = room(wire, 200);
    EXPECT_EQ(add_up({part, part}, wire, 2, rest, out), 2);
    EXPECT_TRUE(at::equal(out, expected));
    EXPECT_TRUE(at::equal(rest, expected_rest));
    EXPECT_EQ(out.view({4, -1}).select(0, 1).count_nonzero().item<int>(), 0);
    EXPECT_EQ(out.view({4, -1}).select(0, 3).count_nonzero().item<int>(), 0);
    EXPECT_NE(out.view({4, -1}).select(0, 2).count_nonzero().item<int>(), 0);
    EXPECT_TRUE(at::equal(rest.narrow(0, 64, 64), at::full({64}, 0.25)));
    EXPECT_TRUE(at::equal(rest.narrow(0, 192, 8), at::full({8}, 0.25)));
    EXPECT_NE(rest[0].item<float>(), 0.25f);
  }
}

// ---- Reading them.

// Blocks are the same numbers as floats are: the sum, and what was sent.
TEST(Blocks, ApplyAndNormsEqualThoseOfTheSameFloats) {
  for (const Wire wire : kWires) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const Restart restart : {Restart::kPaper, Restart::kKeep, Restart::kMix}) {
        for (const bool nesterov : {false, true}) {
          for (const std::int64_t size : kSizes) {
            if (size > (dtype == at::kDouble ? 1025 : 1 << 20)) continue;
            const State state = State::random(size, dtype, 1);
            const at::Tensor blocks = room(wire, size, 1);
            blocks.copy_(encode_with(fused::best_kernel(), state.sum.to(at::kFloat).clone(), wire).blocks);
            const Wired sum(blocks, wire, size);
            state.sum.copy_(decode(sum));
            const at::Tensor own = room(wire, size, 1);
            own.copy_(encode_with(fused::best_kernel(), state.sent.to(at::kFloat).clone(), wire).blocks);
            const Wired sent(own, wire, size, 1.7);
            state.sent.copy_(decode(sent, dtype));
            const State other = state.clone();
            const Move move = reference::some_move(restart, nesterov);
            const double next = next_momentum_squared_norm(other.sum, state.momentum, move);
            EXPECT_NEAR(next_momentum_squared_norm(sum, state.momentum, move), next, 1e-12 * next);
            const ApplyNorms norms = apply(sum, state.momentum, state.consensus, sent, state.live, move, true);
            const ApplyNorms expected =
                apply(other.sum, other.momentum, other.consensus, other.sent, other.live, move, true);
            EXPECT_EQ(norms.move, expected.move);
            EXPECT_EQ(norms.clipped, expected.clipped);
            EXPECT_TRUE(at::equal(state.momentum, other.momentum));
            EXPECT_TRUE(at::equal(state.consensus, other.consensus));
            EXPECT_TRUE(at::equal(state.live, other.live));
            const double wide = squared_norm(other.sum);
            EXPECT_NEAR(squared_norm(sum), wide, 1e-12 * wide);
            EXPECT_NEAR(with_operators::squared_norm(sum), wide, 2e-6 * wide);
          }
        }
      }
    }
  }
}

TEST(Blocks, RefusesWhatDoesNotFit) {
  const State s = State::random(100);
  const at::Tensor blocks = room(Wire::kInt8, 100);
  EXPECT_NO_THROW(encode(s.consensus, s.live, 1, Wire::kInt8, blocks));
  EXPECT_THROW(encode(s.consensus, s.live, 1, Wire::kInt4, blocks), c10::Error);
  EXPECT_THROW(encode(s.consensus, s.live, 1, Wire::kPlain, blocks), c10::Error);
  EXPECT_THROW(encode(s.consensus, s.live, 0, Wire::kInt8, blocks), c10::Error);
  EXPECT_THROW(encode(s.consensus, s.live, 1, Wire::kInt8, blocks.view(at::kChar)), c10::Error);
  const at::Tensor none;
  EXPECT_THROW(apply({blocks, Wire::kInt8, 99}, s.momentum, s.consensus, none, s.live, {}, false), c10::Error);
  EXPECT_THROW(apply({blocks, Wire::kInt2, 100}, s.momentum, s.consensus, none, s.live, {}, false), c10::Error);
  EXPECT_THROW(apply({blocks, Wire::kPlain, 100}, s.momentum, s.consensus, none, s.live, {}, false), c10::Error);
  const auto keep = [&](const Wired& sum, const Wired& sent) {
    apply(sum, s.momentum, s.consensus, sent, s.live, {.restart = Restart::kKeep}, false);
  };
  const Wired sum(blocks, Wire::kInt8, 100);
  EXPECT_NO_THROW(keep(sum, sum));
  EXPECT_THROW(keep(sum, s.sent), c10::Error);
  EXPECT_THROW(keep(s.sum, sum), c10::Error);
  EXPECT_THROW(keep(sum, none), c10::Error);
  EXPECT_THROW(keep(sum, {blocks, Wire::kInt8, 99}), c10::Error);
  EXPECT_THROW(keep(sum, {blocks, Wire::kInt8, 100, 0}), c10::Error);
  EXPECT_THROW(keep(s.sum, s.sent.to(at::kBFloat16)), c10::Error);
  const at::Tensor rest = at::zeros({100});
  EXPECT_THROW(add_up({}, Wire::kInt8, 1, rest, blocks.clone()), c10::Error);
  EXPECT_THROW(add_up({blocks.narrow(0, 0, 66)}, Wire::kInt8, 1, rest, blocks.clone()), c10::Error);
  EXPECT_THROW(add_up({blocks}, Wire::kInt8, -1, rest, blocks.clone()), c10::Error);
  EXPECT_THROW(add_up({blocks}, Wire::kInt8, 1, rest.to(at::kDouble), blocks.clone()), c10::Error);
  EXPECT_THROW(add_up({blocks}, Wire::kInt8, 1, at::zeros({129}), blocks.clone()), c10::Error);
}

}  // namespace
}  // namespace co2::outer
