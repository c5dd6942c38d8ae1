#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace co2::train {

/// Whether the run in this folder has taken `steps` steps and written its results, with its model, so that nothing is
/// left to do. Only looks: whoever asks before a run goes on has changed nothing when the answer is no.
///
/// Throws OptionError if it has taken more steps than that, and DataError if it has results but no checkpoint: to go on
/// would be to begin anew, and to replace them.
bool is_complete(const std::filesystem::path& folder, std::int64_t steps);

/// What there is to say then.
std::string complete_text(const std::filesystem::path& folder, std::int64_t steps);

/// Whether there is something to go on from, good or not. Throws DataError.
bool has_checkpoints(const std::filesystem::path& folder);

/// Whether it has ended, or was stopped, and has written a summary. Throws DataError.
bool has_results(const std::filesystem::path& folder);

}  // namespace co2::train
