#include "study/section.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/closest_name.h"

namespace co2::study {

using nlohmann::json;

namespace {

/// Options of co2 train that a study sets itself, and why.
const std::map<std::string, std::string>& not_yours() {
  static const std::map<std::string, std::string> options = {
      {"seed", "write seeds = [1, 2, 3], at the top or in a row"},
      {"virtual", "the workers of a study always are"},
      {"out", "say --out to co2 study"},
      {"threads", "a run has one core"},
      {"pin", "a run has one core"},
      {"host", "there is no network"},
      {"port", "there is no network"},
      {"interface", "there is no network"},
      {"checkpoint_every", "a run that is stopped begins anew"},
      {"keep", "there are no checkpoints"},
  };
  return options;
}

}  // namespace

std::string Section::place() const { return place_at(table_.source()); }

std::string Section::place_at(const toml::source_region& source) const {
  return fmt::format(" ({}, line {})", path_.string(), source.begin.line);
}

void Section::refuse(const std::string& key, const std::string& why) const {
  const toml::node* node = table_.get(key);
  throw OptionError(fmt::format("'{}'{}{} {}", key, title_.empty() ? "" : fmt::format(" in [{}]", title_),
                                node != nullptr ? place_at(node->source()) : place(), why));
}

template <typename T>
std::optional<T> Section::value(const std::string& key, const char* must) {
  known_.insert(key);
  if (!has(key)) return std::nullopt;
  const auto found = table_.get(key)->template value<T>();
  if (!found) refuse(key, must);
  return found;
}

std::optional<std::string> Section::text(const std::string& key) { return value<std::string>(key, "must be a text"); }
std::optional<double> Section::number(const std::string& key) { return value<double>(key, "must be a number"); }
std::optional<std::int64_t> Section::whole(const std::string& key) {
  return value<std::int64_t>(key, "must be a whole number");
}

std::vector<std::string> Section::texts(const std::string& key) {
  known_.insert(key);
  std::vector<std::string> result;
  if (!has(key)) return result;
  for (const json& each : list(key)) {
    if (!each.is_string()) refuse(key, "must be a list of texts");
    result.push_back(each);
  }
  return result;
}

std::vector<std::uint64_t> Section::seeds(const std::string& key) {
  known_.insert(key);
  std::vector<std::uint64_t> result;
  if (!has(key)) return result;
  for (const json& each : list(key)) {
    if (!each.is_number_integer() || each < 0) refuse(key, "must be a list of whole numbers, none of them negative");
    result.push_back(each);
  }
  return result;
}

std::optional<Section> Section::section(const std::string& key) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_table()) refuse(key, fmt::format("must be a section: write [{}]", full(key)));
  return Section(*node->as_table(), full(key), path_);
}

std::vector<Section> Section::sections(const std::string& key) {
  known_.insert(key);
  std::vector<Section> result;
  if (!has(key)) return result;
  const toml::array* array = table_.get(key)->as_array();
  if (array == nullptr || !array->is_homogeneous(toml::node_type::table)) {
    refuse(key, fmt::format("must be a list of sections: write [[{}]] above each", full(key)));
  }
  for (const toml::node& each : *array) result.emplace_back(*each.as_table(), full(key), path_);
  return result;
}

Settings Section::settings() const {
  Settings result;
  for (auto&& [name, node] : table_) {
    const std::string key(name.str());
    if (!known_.contains(key) && !node.is_array()) add(result, key, {scalar(key, node), place_at(node.source())});
  }
  return result;
}

std::vector<Choice> Section::choices() const {
  std::vector<Choice> result;
  Settings seen;
  for (auto&& [name, node] : table_) {
    const std::string key(name.str());
    if (known_.contains(key) || !node.is_array()) continue;
    add(seen, key, {});
    result.push_back({option_name(key), list(key), place_at(node.source())});
  }
  return result;
}

void Section::refuse_lists() const {
  for (auto&& [key, node] : table_) {
    if (known_.contains(std::string(key.str())) || !node.is_array()) continue;
    refuse(std::string(key.str()),
           "is a list: in [row.grid] it makes one row of each value, in [tune] or [row.tune] the best one is chosen");
  }
}

void Section::refuse_single_values() const {
  for (auto&& [key, node] : table_) {
    if (known_.contains(std::string(key.str())) || node.is_array()) continue;
    refuse(std::string(key.str()), "must be a list of values");
  }
}

void Section::refuse_others() const {
  for (auto&& [name, node] : table_) {
    const std::string key(name.str());
    if (known_.contains(key)) continue;
    const std::vector<std::string> all(known_.begin(), known_.end());
    refuse(key, fmt::format("is not known{} Allowed: {}. Options of co2 train go into [common] or a [[row]]",
                            did_you_mean(key, all), fmt::join(all, ", ")));
  }
}

std::string Section::option_name(const std::string& key) const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '-', '_');
  const auto found = not_yours().find(name);
  if (found != not_yours().end()) refuse(key, "is up to the study: " + found->second);
  return name;
}

void Section::add(Settings& settings, const std::string& key, Value value) const {
  if (!settings.emplace(option_name(key), std::move(value)).second) refuse(key, "is there twice");
}

json Section::scalar(const std::string& key, const toml::node& node) const {
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* yes_no = node.as_boolean()) return yes_no->get();
  if (const auto* string = node.as_string()) return string->get();
  refuse(key, node.is_table()   ? "is a section that a study does not have"
              : node.is_array() ? "is a list of lists"
                                : "is a date or time, which no option is");
}

std::vector<json> Section::list(const std::string& key) const {
  const toml::array* array = table_.get(key)->as_array();
  if (array == nullptr) refuse(key, "must be a list");
  std::vector<json> result;
  for (const toml::node& each : *array) {
    json value = scalar(key, each);
    if (std::find(result.begin(), result.end(), value) != result.end()) {
      refuse(key, fmt::format("has {} twice", value.dump()));
    }
    result.push_back(std::move(value));
  }
  if (result.empty()) refuse(key, "is an empty list");
  return result;
}

}  // namespace co2::study
