#pragma once

#include <filesystem>

namespace co2::checkpoint {

/// Whether something has that name, whatever it is.
bool is_there(const std::filesystem::path& path);

/// Throws DataError.
void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

/// How a folder takes the place of another one.
enum class Replace {
  kSwap,       ///< in one go, where the file system can swap two names; otherwise like the other
  kStepAside,  ///< the one that is there is called `old` first
};

/// Renames `fresh` to `place`. Whoever is there gives way, and is whole under one of these names at every moment:
/// `place`, `old`, or, once the fresh one is in its place, `fresh`. What is left of it then is the caller's to remove.
/// Everything is on disk when it returns. Throws DataError.
void put_in_place(const std::filesystem::path& fresh, const std::filesystem::path& place,
                  const std::filesystem::path& old, Replace replace);

}  // namespace co2::checkpoint
