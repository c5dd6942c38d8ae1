#include "sync/header.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "flat/checksum.h"

namespace co2 {

namespace {
enum Place : std::int64_t { kWeight, kSize, kKnownSize, kCheck, kSquaredCheck, kRates };
}  // namespace

at::Tensor to_sum(const Header& header) {
  const std::size_t count = header.rates.size() + header.sent_sizes.size() + header.trained.size();
  at::Tensor numbers = at::empty({kRates + static_cast<std::int64_t>(count)}, at::kDouble);
  auto* values = numbers.mutable_data_ptr<double>();
  // Who sends nothing has no say; its size may be anything, even infinite.
  const auto weighed = [&](double value) { return header.weight > 0 ? header.weight * value : 0; };
  values[kWeight] = header.weight;
  values[kSize] = weighed(header.size);
  values[kKnownSize] = weighed(header.known_size);
  values[kCheck] = header.check;
  values[kSquaredCheck] = static_cast<double>(header.check) * header.check;
  double* next = std::transform(header.rates.begin(), header.rates.end(), values + kRates, weighed);
  next = std::transform(header.sent_sizes.begin(), header.sent_sizes.end(), next, weighed);
  std::copy(header.trained.begin(), header.trained.end(), next);
  return numbers;
}

AgreedHeader agreed(const at::Tensor& sums, int workers, std::size_t rates, std::size_t sizes) {
  const auto* values = sums.const_data_ptr<double>();
  AgreedHeader result;
  result.total_weight = values[kWeight];
  const double share = result.total_weight > 0 ? 1 / result.total_weight : 0;
  const auto mean = [&](double sum) { return share * sum; };
  result.size = mean(values[kSize]);
  result.known_size = mean(values[kKnownSize]);
  const double* const after_rates = values + kRates + rates;
  const double* const after_sizes = after_rates + sizes;
  std::transform(values + kRates, after_rates, std::back_inserter(result.rates), mean);
  std::transform(after_rates, after_sizes, std::back_inserter(result.sent_sizes), mean);
  result.trained.assign(after_sizes, values + sums.numel());
  // G Σc² ≥ (Σc)², and they are equal only if all c are. Both are integers below G² 2³², and exact.
  const auto sum = static_cast<std::uint64_t>(values[kCheck]);
  const auto squares = static_cast<std::uint64_t>(values[kSquaredCheck]);
  result.same_consensus = squares * static_cast<std::uint64_t>(workers) == sum * sum;
  return result;
}

void require_same_consensus(const AgreedHeader& header, const std::string& of) {
  if (header.same_consensus) return;
  throw ConsensusError(fmt::format(
      "the workers no longer agree on {}: one of them is in finish() while others still step (its data were shorter?), "
      "something has changed it on one of them, or a memory or a program there is broken. Nothing was applied; go on "
      "from the last model that you saved",
      of));
}

std::uint16_t consensus_check(const at::Tensor& consensus, std::int64_t turn) {
  const std::int64_t part = turn % kConsensusParts;
  const std::int64_t begin = part * consensus.numel() / kConsensusParts;
  const std::int64_t end = (part + 1) * consensus.numel() / kConsensusParts;
  const std::uint64_t hash = checksum(consensus.narrow(0, begin, end - begin));
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

}  // namespace co2
