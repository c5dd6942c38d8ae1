#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "processes/signal_queue.h"

namespace co2::lab {

/// Other people's tools on the same model, data and network: the Python programs in the folder peers/.
///
///   peers/setup                                                    makes their environment, prints its Python
///   PYTHON peers/train.py --check --config FILE --out DIR          fails unless their model is ours
///   PYTHON peers/train.py --peer NAME --config FILE --out DIR      one worker, with the variables that ours have too;
///                                                                  rank 0 writes summary.json and metrics.jsonl
class Peers {
 public:
  /// Finds the folder ($CO2_PEERS, or that of the source tree) and sets up the environment, which takes minutes the
  /// first time and needs the machine's network. Throws DataError, Stopped at one of `signals`, which must live on.
  explicit Peers(const processes::SignalQueue& signals);

  /// Proves that their model is ours. Throws DataError with what differs, Stopped.
  void check(const nlohmann::ordered_json& config, const std::filesystem::path& folder) const;

  std::vector<std::string> command(const std::string& peer, const std::filesystem::path& config,
                                   const std::filesystem::path& folder) const;

 private:
  const processes::SignalQueue& signals_;
  std::filesystem::path folder_;
  std::string python_;
};

}  // namespace co2::lab
