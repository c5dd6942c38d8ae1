#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "processes/signal_queue.h"

namespace co2::lab {

/// A row of the table: what is run at every rate.
struct Item {
  std::string label;                ///< as the user wrote it: "co2", "co2+bfloat16", "ddp@40", "torch-ddp@40"
  std::string strategy{};           ///< of co2; empty for a peer
  std::string peer_name{};          ///< "torch-ddp"; empty for a strategy
  std::string wire{};               ///< how numbers travel; empty: plain
  std::optional<long> steps{};      ///< fewer than the others: for throughput alone, no losses
  nlohmann::ordered_json config{};  ///< complete, as co2 train --print-config gives it

  bool peer() const { return !peer_name.empty(); }
};

/// "none,ddp@40,co2,co2+bfloat16", or "all". Throws OptionError.
std::vector<Item> parse_strategies(std::string_view text);

/// "torch,torchft", or single names, "torch-ddp@40". Throws OptionError.
std::vector<Item> parse_peers(std::string_view text);

/// Gives every item of co2 its configuration, by asking `co2 train --print-config` with `flags` and what the item
/// itself adds: whatever co2 train would refuse is refused here, before anything runs. Peers get that of `co2`.
/// Throws OptionError with co2 train's own message, Stopped at one of `signals`.
void configure(std::vector<Item>& items, const std::vector<std::string>& flags,
               const processes::SignalQueue* signals = nullptr);

/// Throws OptionError for a flag of co2 train that the lab sets itself.
void check_train_flags(const std::vector<std::string>& flags);

}  // namespace co2::lab
