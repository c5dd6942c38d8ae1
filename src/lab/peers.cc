#include "lab/peers.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "lab/tool.h"
#include "processes/worker_environment.h"
#include "train/folders.h"

namespace co2::lab {

namespace {

constexpr std::chrono::minutes kSetupTime{30};
constexpr std::chrono::minutes kCheckTime{10};

std::filesystem::path find_folder() {
  const char* named = std::getenv("CO2_PEERS");
  std::filesystem::path folder = named != nullptr && *named != '\0' ? named : CO2_SOURCE_DIR "/peers";
  if (std::filesystem::exists(folder / "train.py")) return folder;
  throw DataError(
      fmt::format("there are no peers in {}: set CO2_PEERS to the folder peers of co2's source tree, or leave "
                  "--peers out",
                  folder.string()));
}

std::vector<std::string> environment() { return processes::as_list(processes::own_environment()); }

}  // namespace

Peers::Peers(const processes::SignalQueue& signals) : signals_(signals), folder_(find_folder()) {
  Tool tool{.command = {folder_ / "setup"}, .environment = environment()};
  tool.timeout = kSetupTime;
  tool.show_errors = true;
  tool.signals = &signals_;
  const ToolResult result = run_tool(tool);
  python_ = last_lines(result.output, 1);
  if (result.code != 0 || python_.empty()) {
    throw DataError(fmt::format("{} {}: {}", (folder_ / "setup").string(), how_it_ended(tool, result),
                                last_lines(result.output, 3)));
  }
}

void Peers::check(const nlohmann::ordered_json& config, const std::filesystem::path& folder) const {
  train::ensure_writable(folder);
  write_atomically(folder / "config.json", config.dump(2) + "\n");
  Tool tool{.command = {python_, folder_ / "train.py", "--check", "--config", folder / "config.json", "--out", folder,
                        "--co2", fmt::format("/proc/{}/exe", getpid())},
            .environment = environment()};
  tool.timeout = kCheckTime;
  tool.signals = &signals_;
  const ToolResult result = run_tool(tool);
  if (result.code == 0) return;
  throw DataError(fmt::format("the check that the peers train our model {}, so that nothing can be compared: {}",
                              result.timed_out ? how_it_ended(tool, result) : "failed",
                              last_lines(result.output + result.errors, 8)));
}

std::vector<std::string> Peers::command(const std::string& peer, const std::filesystem::path& config,
                                        const std::filesystem::path& folder) const {
  return {python_, folder_ / "train.py", "--peer", peer, "--config", config, "--out", folder};
}

}  // namespace co2::lab
