#pragma once

#include <cstddef>
#include <string>

namespace co2::train {

constexpr std::size_t kSyntheticBytes = 2'000'000;

/// English-like text from a small grammar: subjects that persist over a paragraph, agreement, clauses, direct speech.
/// The same on every machine. About `bytes` long, ending with a whole paragraph.
std::string synthetic_text(std::size_t bytes);

}  // namespace co2::train
