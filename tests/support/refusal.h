#pragma once

#include <co2/error.h>

#include <string>

namespace co2::test {

/// The message with which something is refused; empty if it is not.
template <typename Refusal = OptionError, typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const Refusal& error) {
    return error.what();
  }
  return "";
}

}  // namespace co2::test
