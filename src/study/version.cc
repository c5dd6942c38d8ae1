#include "study/version.h"

#include <fmt/format.h>

#include "base/version.h"
#include "study/commit.h"  // written by cmake/commit.cmake at every build

namespace co2::study {

std::string version() { return fmt::format("{} ({})", kVersion, kCommit); }

}  // namespace co2::study
