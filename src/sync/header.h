#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace co2 {

/// What a worker tells about the progress that it sends. It travels with the progress, over a group of its own, so that
/// all workers apply the same thing in the same way, whatever their own rates and samples.
struct Header {
  double weight = 0;               ///< w: samples since the last launch
  double size = 0;                 ///< of the progress (UsualProgress)
  double known_size = 0;           ///< of what there is of it in parameters of which it is known (KnownParameters)
  std::vector<double> sent_sizes;  ///< 2-norm of what is sent of it in such units, per parameter group; for momentum
  std::vector<double> rates;       ///< γ: the mean inner rate at which it was made, per parameter group
  std::uint16_t check = 0;         ///< of a part of the consensus (consensus_check)
  std::vector<double> trained;  ///< 1 for each parameter that it has trained since it last sent something (TrainedHere)
};

/// What all of them told, the same numbers on every worker.
struct AgreedHeader {
  double total_weight = 0;         ///< Σ w
  double size = 0;                 ///< Σ w size / Σ w
  double known_size = 0;           ///< Σ w known_size / Σ w
  std::vector<double> sent_sizes;  ///< Σ w sent_size / Σ w
  std::vector<double> rates;       ///< Σ w γ / Σ w; 0 if nobody sent anything
  bool same_consensus = true;      ///< all checks were equal
  std::vector<double> trained;     ///< how many have trained each parameter
};

/// Numbers whose sum over the workers agreed() understands.
at::Tensor to_sum(const Header& header);
/// `rates`, `sizes`: how many it has of them.
AgreedHeader agreed(const at::Tensor& sums, int workers, std::size_t rates, std::size_t sizes);

/// Throws ConsensusError unless all checks were equal. `of`: which part of the consensus, for the message.
void require_same_consensus(const AgreedHeader& header, const std::string& of);

/// A checksum of one of kConsensusParts parts of a fragment's consensus, which take turns: a worker whose consensus has
/// other bits is found after a few exchanges, and looking for it costs nothing that could be measured.
inline constexpr std::int64_t kConsensusParts = 64;
std::uint16_t consensus_check(const at::Tensor& consensus, std::int64_t turn);

}  // namespace co2
