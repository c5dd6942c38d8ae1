// The outer pass against a chain of LibTorch operators and against memcpy.
//
//     outer_bench [--elements=N] [--threads=N] [Google Benchmark's own flags]
//
// Every array has `elements` float32 (default 20 M: 80 MB, beyond the caches). Bytes per second count each array once
// per read and once per write, for the operators too (they touch memory more often than that: this is what fusing
// saves), and memcpy of n bytes as 2n.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outer/fused.h"
#include "outer/outer_pass.h"

namespace co2::outer {
namespace {

struct Arrays {
  at::Tensor sum, momentum, consensus, sent, live;

  explicit Arrays(std::int64_t elements) {
    at::manual_seed(1);
    for (at::Tensor* tensor : {&sum, &momentum, &consensus, &sent, &live}) {
      *tensor = at::empty({elements}).uniform_(-1, 1);
    }
  }
};

constexpr Wire kBlockWires[] = {Wire::kInt8, Wire::kInt4, Wire::kInt2};
constexpr int kParts = 4;  ///< that an owner adds up

at::Tensor blocks_of(Wire wire, std::int64_t elements) {
  return at::zeros({blocks_for(elements) * block_bytes(wire)}, at::kByte);
}

std::string form_of(Wire wire) { return fmt::format("int{}", (block_bytes(wire) - 2) * 8 / kBlock); }

using ApplyFunction = decltype(&outer::apply);
using LaunchFunction = decltype(&outer::launch);

Move move_of(Restart restart) { return {.progress_scale = 0.3, .momentum = 0.3, .rate = 1e-3, .restart = restart}; }

/// What `co2` does at each apply (Restart::kKeep; 5 arrays read, 3 written), or `co2-paper` with its norm (3 and 3).
ApplyNorms run_apply(ApplyFunction function, const Arrays& a, Restart restart) {
  return function(a.sum, a.momentum, a.consensus, a.sent, a.live, move_of(restart), restart == Restart::kPaper);
}

/// The rule as docs/algorithm.md states it, one tensor per symbol: what a first implementation looks like.
ApplyNorms apply_as_written(const Wired& sum, const at::Tensor& momentum, const at::Tensor& consensus,
                            const outer::Wired& sent, const at::Tensor& live, const Move& move, bool /*want_norm*/) {
  const at::Tensor g = sum.data * move.progress_scale;
  const at::Tensor m = momentum * move.momentum + g;
  const at::Tensor moved = m * move.rate;
  momentum.copy_(m);
  consensus.sub_(moved);
  live.add_(sent.data).sub_(moved);
  return {};
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

/// A time means nothing if the result is wrong. Values are within ±4, so 1e-6 is two units in their last place.
void check_agreement(std::int64_t elements) {
  for (const Restart restart : {Restart::kKeep, Restart::kPaper}) {
    const Arrays fused(elements);
    const Arrays chain(elements);
    const double fused_norm = run_apply(outer::apply, fused, restart).move;
    const double chain_norm = run_apply(with_operators::apply, chain, restart).move;
    TORCH_CHECK(largest_difference(fused.momentum, chain.momentum) <= 1e-6 &&
                    largest_difference(fused.consensus, chain.consensus) <= 1e-6 &&
                    largest_difference(fused.live, chain.live) <= 1e-6 &&
                    std::abs(fused_norm - chain_norm) <= 1e-5 * chain_norm,
                "the fused apply and the chain of operators disagree");
    if (restart == Restart::kKeep) {
      const Arrays written(elements);
      run_apply(apply_as_written, written, restart);
      TORCH_CHECK(largest_difference(fused.live, written.live) <= 1e-6, "the fused apply and the formula disagree");
    }
    outer::launch(fused.consensus, fused.live, 3, fused.sum, fused.sent);
    with_operators::launch(fused.consensus, fused.live, 3, chain.sum, chain.sent);
    TORCH_CHECK(at::equal(fused.sum, chain.sum) && at::equal(fused.sent, chain.sent),
                "the fused launch and the chain of operators disagree");
    const at::Tensor half = at::empty({elements}, at::kBFloat16);
    outer::launch(fused.consensus, fused.live, 3, half, fused.sent);
    TORCH_CHECK(at::equal(half, chain.sum.to(at::kBFloat16)), "the rounded launch and the operators disagree");
    for (const Wire wire : kBlockWires) {
      const at::Tensor blocks = blocks_of(wire, elements);
      const at::Tensor expected = blocks_of(wire, elements);
      outer::encode(fused.consensus, fused.live, 3, wire, blocks);
      with_operators::encode(fused.consensus, fused.live, 3, wire, expected);
      TORCH_CHECK(at::equal(blocks, expected), "the fused encode and the chain of operators disagree");
    }
    const double norm = outer::squared_norm(fused.sum);
    TORCH_CHECK(std::abs(norm - with_operators::squared_norm(fused.sum)) <= 1e-5 * norm, "the norms disagree");
  }
}

void add(const std::string& name, double bytes, const std::function<void()>& body) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [bytes, body](benchmark::State& state) {
                                 for (auto _ : state) body();
                                 state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void add_benchmarks(const Arrays& a, const at::Tensor& from, const at::Tensor& to) {
  const double array = static_cast<double>(a.sum.nbytes());
  add("memcpy", 2 * static_cast<double>(from.nbytes()),
      [=] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); });
  add("apply_keep/fused", 8 * array, [=] { run_apply(outer::apply, a, Restart::kKeep); });
  add("apply_keep/operators", 8 * array, [=] { run_apply(with_operators::apply, a, Restart::kKeep); });
  add("apply_keep/as_written", 8 * array, [=] { run_apply(apply_as_written, a, Restart::kKeep); });
  add("apply_paper/fused", 6 * array, [=] { run_apply(outer::apply, a, Restart::kPaper); });
  add("apply_paper/operators", 6 * array, [=] { run_apply(with_operators::apply, a, Restart::kPaper); });
  add("launch/fused", 4 * array, [=] { outer::launch(a.consensus, a.live, 1, a.sum, a.sent); });
  add("launch/operators", 4 * array, [=] { with_operators::launch(a.consensus, a.live, 1, a.sum, a.sent); });
  // Half an array on the wire: 7.5 arrays for an apply, 3.5 for a launch.
  const at::Tensor half = a.sum.to(at::kBFloat16);
  add("apply_keep/bfloat16", 7.5 * array,
      [=] { outer::apply(half, a.momentum, a.consensus, a.sent, a.live, move_of(Restart::kKeep), false); });
  add("launch/bfloat16", 3.5 * array, [=] { outer::launch(a.consensus, a.live, 1, half, a.sent); });
  const Move no_momentum = {.progress_scale = 0.3, .rate = 1e-3, .restart = Restart::kKeep};
  add("apply_keep/no_momentum", 6 * array,
      [=] { outer::apply(a.sum, {}, a.consensus, a.sent, a.live, no_momentum, false); });
  for (const Wire wire : kBlockWires) {
    const std::string form = form_of(wire);
    const at::Tensor blocks = blocks_of(wire, a.sum.numel());
    // The sum of an apply lies apart from what a launch writes: blocks of zeros would be read just as fast.
    const at::Tensor sum = blocks.clone();
    outer::encode(a.consensus, a.live, 1, wire, sum);
    const outer::Wired arrived(sum, wire, a.sum.numel());
    const outer::Wired sent(sum.clone(), wire, a.sum.numel(), 1.7);
    const double coded = static_cast<double>(blocks.nbytes());
    add("apply_keep/" + form, 6 * array + 2 * coded,
        [=] { outer::apply(arrived, a.momentum, a.consensus, sent, a.live, move_of(Restart::kKeep), false); });
    add("apply_keep/no_momentum/" + form, 4 * array + 2 * coded,
        [=] { outer::apply(arrived, {}, a.consensus, sent, a.live, no_momentum, false); });
    add("launch/" + form, 2 * array + coded, [=] { outer::encode(a.consensus, a.live, 1, wire, blocks); });
    const std::vector<at::Tensor> parts = {sum, sum.clone(), sum.clone(), sum.clone()};
    add("add_up/" + form, 2 * array + (kParts + 1) * coded, [=] { outer::add_up(parts, wire, 4, a.sum, blocks); });
  }
  add("squared_norm/fused", array, [=] { benchmark::DoNotOptimize(outer::squared_norm(a.sum)); });
  add("squared_norm/operators", array, [=] { benchmark::DoNotOptimize(with_operators::squared_norm(a.sum)); });
}

/// The usual table, of medians and spread, and a record of every repetition.
class Reporter : public benchmark::ConsoleReporter {
 public:
  Reporter() : ConsoleReporter(OO_Tabular) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> shown;
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        bandwidth_[run.run_name.function_name].push_back(run.counters.at("bytes_per_second"));
      }
      if (run.aggregate_name == "median" || run.aggregate_name == "cv" || run.repetitions == 1) shown.push_back(run);
    }
    ConsoleReporter::ReportRuns(shown);
  }

  void print_ratio(const std::string& title, const std::string& above, const std::string& below) const {
    if (!bandwidth_.contains(above) || !bandwidth_.contains(below)) return;  // filtered out by a flag
    const auto& numerators = bandwidth_.at(above);
    const auto& denominators = bandwidth_.at(below);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i) {
      ratios.push_back(numerators[i] / denominators[i]);
    }
    std::sort(ratios.begin(), ratios.end());
    const auto at = [&](double share) { return ratios[static_cast<std::size_t>(share * (ratios.size() - 1) + 0.5)]; };
    fmt::print("{:<46} {:.2f}   [{:.2f} .. {:.2f}]\n", title, at(0.5), at(0.1), at(0.9));
  }

 private:
  std::map<std::string, std::vector<double>> bandwidth_;
};

/// Takes `--name=N` out of the arguments.
std::optional<std::int64_t> take(std::vector<char*>& arguments, std::string_view name) {
  for (auto it = arguments.begin() + 1; it != arguments.end(); ++it) {
    std::string_view text = *it;
    if (!text.starts_with(name) || text.substr(name.size(), 1) != "=") continue;
    text.remove_prefix(name.size() + 1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    TORCH_CHECK(error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 1'000'000'000, name,
                " must be a whole number within 1..1000000000, not '", text, "'");
    arguments.erase(it);
    return value;
  }
  return std::nullopt;
}

int run(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  const std::int64_t elements = take(arguments, "--elements").value_or(20'000'000);
  at::set_num_threads(static_cast<int>(take(arguments, "--threads").value_or(1)));

  // The machine's speed drifts: many short repetitions in random order, so that all see the same weather. Flags of the
  // user come later and win.
  std::string defaults[] = {"--benchmark_enable_random_interleaving=true", "--benchmark_repetitions=25",
                            "--benchmark_min_time=0.05"};
  for (auto& text : defaults) arguments.insert(arguments.begin() + 1, text.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  check_agreement(elements);
  fmt::print("{} elements per array, {} threads, kernel {}; fused and operators agree\n", elements,
             at::get_num_threads(), fused::best_kernel().name);
  const Arrays arrays(elements);
  const at::Tensor from = at::ones({4 * elements});
  const at::Tensor to = at::zeros({4 * elements});
  add_benchmarks(arrays, from, to);
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();

  fmt::print("\nmedian of the repetitions' ratios [10 % .. 90 %]\n");
  reporter.print_ratio("apply keep: fused, times the operators' speed", "apply_keep/fused", "apply_keep/operators");
  reporter.print_ratio("apply keep: times the formula as written", "apply_keep/fused", "apply_keep/as_written");
  reporter.print_ratio("apply keep: fused, share of memcpy's bandwidth", "apply_keep/fused", "memcpy");
  reporter.print_ratio("apply paper: times operators", "apply_paper/fused", "apply_paper/operators");
  reporter.print_ratio("apply paper: share of memcpy", "apply_paper/fused", "memcpy");
  reporter.print_ratio("launch: times operators", "launch/fused", "launch/operators");
  reporter.print_ratio("launch: share of memcpy", "launch/fused", "memcpy");
  reporter.print_ratio("apply keep: bfloat16 wire, share of memcpy", "apply_keep/bfloat16", "memcpy");
  reporter.print_ratio("launch: bfloat16 wire, share of memcpy", "launch/bfloat16", "memcpy");
  for (const Wire wire : kBlockWires) {
    const std::string form = form_of(wire);
    reporter.print_ratio("apply keep: " + form + " wire, share of memcpy", "apply_keep/" + form, "memcpy");
    reporter.print_ratio("launch: " + form + " wire, share of memcpy", "launch/" + form, "memcpy");
    reporter.print_ratio("add up: " + form + " wire, share of memcpy", "add_up/" + form, "memcpy");
  }
  reporter.print_ratio("apply keep: no momentum, share of memcpy", "apply_keep/no_momentum", "memcpy");
  reporter.print_ratio("squared norm: times operators", "squared_norm/fused", "squared_norm/operators");
  return 0;
}

}  // namespace
}  // namespace co2::outer

int main(int argc, char** argv) {
  try {
    return co2::outer::run(argc, argv);
  } catch (const c10::Error& error) {
    fmt::print(stderr, "outer_bench: {}\n", error.what_without_backtrace());
    return 1;
  }
}
