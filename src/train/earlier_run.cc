#include "train/earlier_run.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/files.h"
#include "checkpoint/folder.h"
#include "train/run_files.h"

namespace co2::train {

namespace {

struct Results {
  std::int64_t steps = 0;
  bool interrupted = false;
};

/// What summary.json says; nothing if the run never came to write it.
std::optional<Results> results_in(const std::filesystem::path& folder) {
  const auto path = folder / kSummaryFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    return Results{json.at("steps").get<std::int64_t>(), json.at("interrupted").get<bool>()};
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format(
        "{} is not the summary of a run, so that nobody can tell how far it came: put it right, or remove it",
        path.string()));
  }
}

/// A disk that was full may have had room for a summary, and not for what comes before it.
bool has_model(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "model/model.safetensors", error) &&
         std::filesystem::exists(folder / "model/config.json", error);
}

/// How many steps the run's newest life was to take: one that was killed has left the summary of the life before.
std::int64_t planned_in(const std::filesystem::path& folder) {
  const auto path = folder / kConfigFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return 0;
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  return json.is_object() ? json.value("steps", std::int64_t{0}) : 0;
}

/// Nothing: there is no checkpoint. 0: none has a manifest that tells its step.
std::optional<std::int64_t> newest_saved(const std::filesystem::path& folder) {
  std::optional<std::int64_t> newest;
  for (const checkpoint::Listed& each : checkpoint::Checkpoints(folder).list()) {
    newest = std::max(newest.value_or(0), each.manifest ? each.step : 0);
  }
  return newest;
}

}  // namespace

bool is_complete(const std::filesystem::path& folder, std::int64_t steps) {
  const std::optional<Results> results = results_in(folder);
  const bool finished = results && !results->interrupted && planned_in(folder) <= results->steps;
  if (finished && steps == results->steps && has_model(folder)) return true;
  const std::optional<std::int64_t> saved = newest_saved(folder);
  const std::int64_t taken = std::max(results ? results->steps : 0, saved.value_or(0));
  if (steps < taken) {
    throw OptionError(
        fmt::format("steps = {} is not allowed: the run in {} has taken {} already. Ask for more, or begin a new "
                    "run in another folder",
                    steps, folder.string(), taken));
  }
  if (results && !saved && !has_model(folder)) {
    throw DataError(
        fmt::format("the run in {} has taken {} steps, but has no model (model/model.safetensors, model/config.json), "
                    "and no checkpoint to make it from: make room on the disk, and begin a new run in another folder",
                    folder.string(), results->steps));
  }
  if (results && !saved) {
    throw DataError(fmt::format(
        "{} has the results of {} steps, but no checkpoint to go on from: begin a new run in another folder, "
        "with its weights if you like (--init-from {})",
        folder.string(), results->steps, (folder / "model").string()));
  }
  return false;
}

bool has_checkpoints(const std::filesystem::path& folder) { return newest_saved(folder).has_value(); }

bool has_results(const std::filesystem::path& folder) { return results_in(folder).has_value(); }

std::string complete_text(const std::filesystem::path& folder, std::int64_t steps) {
  return fmt::format(
      "the run in {} is complete: it has taken all its {} steps. Nothing was changed; for more give it a "
      "higher --steps\n",
      folder.string(), steps);
}

}  // namespace co2::train
