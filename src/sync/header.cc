#include "sync/header.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "flat/checksum.h"

namespace co2 {

namespace {
enum Place : std::int64_t { kWeight, kSize, kSentSize, kCheck, kSquaredCheck, kRates };
}  // namespace

at::Tensor to_sum(const Header& header) {
  const auto count = static_cast<std::int64_t>(header.rates.size() + header.trained.size());
  at::Tensor numbers = at::empty({kRates + count}, at::kDouble);
  auto* values = numbers.mutable_data_ptr<double>();
  values[kWeight] = header.weight;
  // Who sends nothing has no say; its size may be anything, even infinite.
  values[kSize] = header.weight > 0 ? header.weight * header.size : 0;
  values[kSentSize] = header.weight > 0 ? header.weight * header.sent_size : 0;
  values[kCheck] = header.check;
  values[kSquaredCheck] = static_cast<double>(header.check) * header.check;
  double* const after_rates = std::transform(header.rates.begin(), header.rates.end(), values + kRates,
                                             [&](double rate) { return header.weight * rate; });
  std::copy(header.trained.begin(), header.trained.end(), after_rates);
  return numbers;
}

AgreedHeader agreed(const at::Tensor& sums, int workers, std::size_t groups) {
  const auto* values = sums.const_data_ptr<double>();
  AgreedHeader result;
  result.total_weight = values[kWeight];
  const double share = result.total_weight > 0 ? 1 / result.total_weight : 0;
  result.size = share * values[kSize];
  result.sent_size = share * values[kSentSize];
  const double* const after_rates = values + kRates + groups;
  std::transform(values + kRates, after_rates, std::back_inserter(result.rates), [&](double v) { return share * v; });
  result.trained.assign(after_rates, values + sums.numel());
  // G Σc² ≥ (Σc)², and they are equal only if all c are. Both are integers below G² 2³², and exact.
  const auto sum = static_cast<std::uint64_t>(values[kCheck]);
  const auto squares = static_cast<std::uint64_t>(values[kSquaredCheck]);
  result.same_consensus = squares * static_cast<std::uint64_t>(workers) == sum * sum;
  return result;
}

void require_same_consensus(const AgreedHeader& header, const std::string& of) {
  if (header.same_consensus) return;
  throw ConsensusError(fmt::format(
      "the workers no longer agree on {}: something has changed it on one of them, or a memory or a program there is "
      "broken. Nothing was applied; go on from the last model that you saved",
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
