#include "cli/same_options.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checksum.h"
#include "cli/train_flags.h"
#include "cli/train_options.h"

namespace co2::cli {

namespace {

/// How much a worker computes at a time and with what, where rank 0 writes, and the way to the others.
constexpr std::array<std::string_view, 10> kOfMachine{
    "batch",   "out",     "host", "port", "interface", "rendezvous-timeout", "collective-timeout",
    "workers", "threads", "pin"};

/// Never negative.
std::int64_t fingerprint(std::string_view text) {
  constexpr std::size_t kDigits = 15;  // of four bits
  return std::stoll(checkpoint::checksum_of(text).substr(0, kDigits), nullptr, 16);
}

/// For each of the texts, of which all workers have the same number, whether some worker has another one.
std::vector<bool> differing(Communicator& workers, const std::vector<std::string>& texts) {
  std::vector<std::int64_t> mine;
  for (const std::string& text : texts) mine.push_back(fingerprint(text));
  const at::Tensor highest = at::tensor(mine, at::kLong);
  const at::Tensor extremes = at::stack({highest, -highest});  // the second row's highest are the lowest, negated
  workers.all_reduce(extremes, ReduceOp::kMax)->wait();
  const at::Tensor differs = extremes[0] != -extremes[1];
  std::vector<bool> result;
  for (std::int64_t i = 0; i < differs.numel(); ++i) result.push_back(differs[i].item<bool>());
  return result;
}

/// "--steps 60", for every option that belongs to the run.
std::vector<std::string> options_of_run(const train::TrainConfig& config) {
  const std::vector<TrainOption>& known = train_options(config.task);
  std::vector<std::string> texts{config.resume ? "--resume" : "no --resume"};
  for (const TrainOption& each : all_train_options()) {
    if (std::ranges::find(kOfMachine, each.flag) != kOfMachine.end()) continue;
    const auto option = std::ranges::find(known, each.flag, &TrainOption::flag);
    const nlohmann::json value = option == known.end() ? nlohmann::json() : option->get(config);
    texts.push_back(value.is_null() ? "no --" + each.flag
                                    : fmt::format("{}", fmt::join(as_words(each.flag, value), " ")));
  }
  return texts;
}

}  // namespace

void check_same_options(Communicator& workers, const train::TrainConfig& config) {
  if (workers.size() == 1) return;
  std::string names;
  for (const TrainOption& each : all_train_options()) names += each.flag + " ";
  const std::vector<bool> basic = differing(workers, {names, config.task});
  if (basic[0]) {
    throw ClusterError("the workers are not of one version of co2, as their options show: install the same everywhere");
  }
  std::vector<std::string> told;
  if (basic[1]) {
    told.push_back("the task " + config.task);  // whose options are others
  } else {
    const std::vector<std::string> texts = options_of_run(config);
    const std::vector<bool> differs = differing(workers, texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (differs[i]) told.push_back(texts[i]);
    }
  }
  if (told.empty()) return;
  throw ClusterError(
      fmt::format("the workers were given different options: rank {} has {}, and others have not. Start all of them "
                  "with the same; only --{} may differ",
                  workers.rank(), fmt::join(told, ", "), fmt::join(kOfMachine, ", --")));
}

}  // namespace co2::cli
