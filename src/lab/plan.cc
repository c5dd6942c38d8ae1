#include "lab/plan.h"

#include <co2/error.h>
#include <co2/options.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/closest_name.h"
#include "lab/split.h"
#include "lab/tool.h"
#include "processes/worker_environment.h"

namespace co2::lab {

namespace {

constexpr std::array kTorch{"torch-none", "torch-ddp", "torch-ddp-bf16", "torch-post-local-sgd"};
constexpr std::array kTorchft{"torchft-local-sgd", "torchft-diloco", "torchft-diloco-overlap", "torchft-streaming"};

/// Cuts "@40" off.
std::optional<long> take_steps(std::string& item, const char* flag) {
  const auto at = item.find('@');
  if (at == std::string::npos) return std::nullopt;
  const std::string text = item.substr(at + 1);
  long steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || steps <= 0) {
    throw OptionError(fmt::format("'{}' in {}: after @ comes a number of steps, as in ddp@40", item, flag));
  }
  item.resize(at);
  return steps;
}

Item parse_item(const std::string& text) {
  Item item{.label = text};
  std::string rest = text;
  item.steps = take_steps(rest, "--strategies");
  if (const auto plus = rest.find('+'); plus != std::string::npos) {
    item.wire = rest.substr(plus + 1);
    if (item.wire.empty()) {
      throw OptionError(fmt::format("'{}' in --strategies: after + comes a wire format, as in co2+bfloat16", text));
    }
    rest.resize(plus);
  }
  item.strategy = name(strategy_from_name(rest));
  return item;
}

void add(std::vector<Item>& items, Item item, const char* flag) {
  const bool twice =
      std::any_of(items.begin(), items.end(), [&](const Item& other) { return other.label == item.label; });
  if (twice) throw OptionError(fmt::format("{} has '{}' twice", flag, item.label));
  items.push_back(std::move(item));
}

nlohmann::ordered_json train_config(const std::vector<std::string>& flags, const processes::SignalQueue* signals) {
  Tool tool{.command = {kOwnProgram, "train", "--print-config"},
            .environment = processes::as_list(processes::environment_outside_of_jobs())};
  tool.command.insert(tool.command.end(), flags.begin(), flags.end());
  tool.signals = signals;
  const ToolResult result = run_tool(tool);
  if (result.timed_out) throw Error(fmt::format("co2 train --print-config {}", how_it_ended(tool, result)), 1);
  if (result.code != 0) {
    std::string message = last_lines(result.errors, 3);
    constexpr std::string_view kPrefix = "co2: error: ";
    if (message.starts_with(kPrefix)) message.erase(0, kPrefix.size());
    throw Error(message, result.code);
  }
  return nlohmann::ordered_json::parse(result.output);
}

}  // namespace

std::vector<Item> parse_strategies(std::string_view text) {
  std::vector<Item> items;
  if (text == "all") {
    for (const Strategy strategy : all_strategies()) items.push_back(parse_item(std::string(name(strategy))));
    return items;
  }
  for (const std::string_view part : split(text, ',')) add(items, parse_item(std::string(part)), "--strategies");
  return items;
}

std::vector<Item> parse_peers(std::string_view text) {
  std::vector<Item> items;
  if (text.empty()) return items;
  std::vector<std::string> known{"torch", "torchft"};
  known.insert(known.end(), kTorch.begin(), kTorch.end());
  known.insert(known.end(), kTorchft.begin(), kTorchft.end());
  for (const std::string_view name : split(text, ',')) {
    std::string part(name);
    const std::optional<long> steps = take_steps(part, "--peers");
    const auto add_all = [&](const auto& names) {
      for (const char* each : names) {
        std::string label = steps ? fmt::format("{}@{}", each, *steps) : each;
        add(items, Item{.label = std::move(label), .peer_name = each, .steps = steps}, "--peers");
      }
    };
    if (part == "torch") {
      add_all(kTorch);
    } else if (part == "torchft") {
      add_all(kTorchft);
    } else if (std::find(known.begin(), known.end(), part) != known.end()) {
      add_all(std::array{part.c_str()});
    } else {
      throw OptionError(fmt::format("--peers '{}' is not known{} Allowed: {}", part, did_you_mean(part, known),
                                    fmt::join(known, ", ")));
    }
  }
  return items;
}

void check_train_flags(const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    const std::string name = flag.substr(0, flag.find('='));
    const auto instead = [&](const char* what) {
      throw OptionError(fmt::format("'{}' after -- is up to the lab: {}", name, what));
    };
    if (name == "--strategy") instead("write --strategies before --");
    if (name == "--workers") instead("write --workers before --");
    if (name == "--out" || name == "--worker-out") instead("write --out before --");
    if (name == "--resume" || name == "--worker-resume") instead("every run of it begins anew");
    if (name == "--virtual") instead("its workers are processes on hosts of their own");
    if (name == "--host" || name == "--port" || name == "--interface") instead("it makes the network itself");
    if (name == "--print-config" || name == "--json" || name == "--help" || name == "-h") {
      instead("it has no meaning here");
    }
  }
}

void configure(std::vector<Item>& items, const std::vector<std::string>& flags, const processes::SignalQueue* signals) {
  for (Item& item : items) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--strategy", item.peer() ? "co2" : item.strategy});
    if (!item.wire.empty()) all.insert(all.end(), {"--wire", item.wire});
    if (item.steps) all.insert(all.end(), {"--steps", std::to_string(*item.steps)});
    item.config = train_config(all, signals);
  }
}

}  // namespace co2::lab
