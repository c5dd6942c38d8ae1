#pragma once

#include <string>

namespace co2::study {

/// Of this program: "0.1.0 (commit 1a2b3c4d)", and "changed" after it if it was built from something else than that
/// commit.
std::string version();

}  // namespace co2::study
