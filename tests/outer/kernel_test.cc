#include "outer/kernel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "outer/fused.h"
#include "outer/reference.h"

namespace co2::outer {
namespace {

using reference::State;

// The last two are longer than a chunk, and long enough for a launch that stores past the caches.
const std::int64_t kSizes[] = {0, 1, 3, 1023, 1025, (1 << 20) + 7, (1 << 21) + 37};

class NumThreads {
 public:
  explicit NumThreads(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~NumThreads() { at::set_num_threads(before_); }

 private:
  int before_;
};

/// Everything that the kernels compute for one input: the norms as bits, and the tensors.
struct Outcome {
  std::vector<std::uint64_t> norms;
  std::vector<at::Tensor> tensors;

  void add(const LaunchNorms& seen) {
    for (const double norm : {seen.sent, seen.progress, seen.left}) {
      norms.push_back(std::bit_cast<std::uint64_t>(norm));
    }
  }
  bool operator==(const Outcome& other) const {
    bool equal = norms == other.norms && tensors.size() == other.tensors.size();
    for (std::size_t i = 0; equal && i < tensors.size(); ++i) {
      const std::int64_t bytes = tensors[i].element_size();
      const at::ScalarType bits = bytes == 1 ? at::kByte : bytes == 2 ? at::kShort : at::kInt;
      equal = at::equal(tensors[i].view(bits), other.tensors[i].view(bits));
    }
    return equal;
  }
};

/// `sum` is the input's, as floats, as bfloat16 or in blocks.
template <class Wire>
void run_everything(const Kernel& kernel, const State& input, const at::Tensor& sum, bool all_variants,
                    Outcome& outcome) {
  const std::int64_t size = input.sum.numel();
  const auto* sums = static_cast<const Wire*>(sum.const_data_ptr());
  std::vector<ApplyVariant> variants;
  for (const Restart restart : {Restart::kPaper, Restart::kKeep, Restart::kMix}) {
    for (const bool nesterov : {false, true}) {
      for (const bool clip : {false, true}) {
        if (all_variants || nesterov == clip) variants.push_back({restart, nesterov, clip, true});
      }
    }
    variants.push_back({restart, false, false, true, /*without_momentum=*/true});
  }
  // How a block is read does not depend on them.
  if (kBitsOf < Wire >> 0 && !all_variants) variants = {{Restart::kKeep, true, true, true}};
  for (const ApplyVariant& variant : variants) {
    const State s = input.clone();
    const Sent<Wire>* sent = nullptr;
    if constexpr (kBitsOf < Wire >> 0) {
      sent = sums;  // in blocks as well
    } else {
      sent = s.sent.const_data_ptr<float>();
    }
    const ApplyJob<Wire> job = {sums,
                                s.momentum.mutable_data_ptr<float>(),
                                s.consensus.mutable_data_ptr<float>(),
                                sent,
                                1.3f,
                                s.live.mutable_data_ptr<float>(),
                                3.7f,
                                0.3f,
                                0.9f,
                                0.4f,
                                0.02f,
                                0.3f,
                                0.7f};
    const ApplyNorms norms = fused::apply(kernel, job, variant, size);
    for (const double norm : {norms.move, norms.momentum, norms.clipped}) {
      outcome.norms.push_back(std::bit_cast<std::uint64_t>(norm));
    }
    for (const at::Tensor& tensor : {s.momentum, s.consensus, s.live}) outcome.tensors.push_back(tensor);
  }
  const float* momentum = input.momentum.const_data_ptr<float>();
  for (const double norm : {fused::squared_norm(kernel, sums, size),
                            fused::next_momentum_squared_norm(kernel, sums, 3.7f, momentum, 0.3f, size)}) {
    outcome.norms.push_back(std::bit_cast<std::uint64_t>(norm));
  }
  const State s = input.clone();
  const at::Tensor wire = reference::copy_at_offset(sum, sum.scalar_type());
  const LaunchNorms of_launch =
      fused::launch(kernel, s.consensus.const_data_ptr<float>(), s.live.const_data_ptr<float>(), 1.7f,
                    static_cast<Wire*>(wire.mutable_data_ptr()), s.sent.mutable_data_ptr<float>(), size);
  outcome.add(of_launch);
  outcome.tensors.push_back(wire);
  outcome.tensors.push_back(s.sent);
}

/// The input's sum in blocks, as this kernel writes them, and three of them added up.
template <int kBits>
void run_everything_in_blocks(const Kernel& kernel, const State& input, bool all_variants, Outcome& outcome) {
  using Form = Block<kBits>;
  const std::int64_t size = input.sum.numel();
  const std::int64_t blocks = blocks_for(size);
  const auto room = [&] { return at::empty({blocks * static_cast<std::int64_t>(sizeof(Form))}, at::kByte); };
  std::vector<at::Tensor> parts;
  for (const at::Tensor& values : {input.sum, input.sent, input.momentum}) {
    parts.push_back(room());
    outcome.add(fused::launch(kernel, values.const_data_ptr<float>(), input.live.const_data_ptr<float>(), 1.7f,
                              static_cast<Form*>(parts.back().mutable_data_ptr()), nullptr, size));
  }
  run_everything<Form>(kernel, input, parts[0], all_variants, outcome);

  const State s = input.clone();
  const at::Tensor out = room();
  std::vector<const Form*> pointers;
  for (const at::Tensor& part : parts) pointers.push_back(static_cast<const Form*>(part.const_data_ptr()));
  const AddUpJob<kBits> job = {pointers.data(),
                               3,
                               5.1f,
                               1 / 5.1f,
                               s.sum.mutable_data_ptr<float>(),
                               size,
                               static_cast<Form*>(out.mutable_data_ptr())};
  EXPECT_EQ(fused::add_up(kernel, job, blocks), 0);
  for (const at::Tensor& tensor : parts) outcome.tensors.push_back(tensor);
  outcome.tensors.push_back(out);
  outcome.tensors.push_back(s.sum);
}

Outcome run_everything(const Kernel& kernel, const State& input, bool all_variants) {
  Outcome outcome;
  run_everything<float>(kernel, input, input.sum, all_variants, outcome);
  run_everything<Bfloat16>(kernel, input, reference::copy_at_offset(input.sum, at::kBFloat16), all_variants, outcome);
  if (!all_variants && input.sum.numel() < 1 << 21) return outcome;  // of the two long ones, the longer will do
  run_everything_in_blocks<8>(kernel, input, all_variants, outcome);
  run_everything_in_blocks<4>(kernel, input, all_variants, outcome);
  run_everything_in_blocks<2>(kernel, input, all_variants, outcome);
  return outcome;
}

TEST(Kernels, AllWidthsGiveTheSameBits) {
  const std::vector<const Kernel*> kernels = supported_kernels();
  if (kernels.size() == 1) GTEST_SKIP() << "this CPU runs only the baseline kernel";
  for (const std::int64_t size : kSizes) {
    const bool all_variants = size < 1 << 20;
    for (const std::int64_t offset : {0, 1}) {
      const State input = State::random(size, at::kFloat, offset);
      const Outcome expected = run_everything(*kernels.back(), input, all_variants);
      for (const Kernel* kernel : kernels) {
        EXPECT_TRUE(run_everything(*kernel, input, all_variants) == expected) << kernel->name << ", " << size;
      }
    }
  }
}

TEST(Kernels, ThreadsDoNotChangeBits) {
  for (const std::int64_t size : kSizes) {
    const State input = State::random(size);
    const Outcome expected = [&] {
      const NumThreads one(1);
      return run_everything(fused::best_kernel(), input, false);
    }();
    for (const int threads : {2, 3, 7}) {
      const NumThreads guard(threads);
      EXPECT_TRUE(run_everything(fused::best_kernel(), input, false) == expected) << threads << " threads, " << size;
    }
  }
}

}  // namespace
}  // namespace co2::outer
