#pragma once

#include <string>

namespace co2::lab {

/// How the line of a strategy, or of a peer, looks in every picture.
struct Look {
  std::string colour;
  std::string dashes;  ///< of an SVG stroke; empty: none
};

/// Throws std::out_of_range if there is none of that name.
Look look_of(const std::string& name);

}  // namespace co2::lab
