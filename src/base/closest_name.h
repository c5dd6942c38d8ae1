#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace co2 {

/// The candidate with the fewest edits from `text`; empty if none is near.
std::string closest(std::string_view text, const std::vector<std::string>& candidates);

/// Ends the first sentence of an error about an unknown name: "; did you mean 'x'?", or "." if nothing is near.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

/// The member `field` of every entry of a table, as the list of names that a user may choose from.
template <class Table, class Field>
std::vector<std::string> names_of(const Table& table, Field field) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.*field);
  return names;
}

}  // namespace co2
