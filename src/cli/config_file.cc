#include "cli/config_file.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "base/files.h"
#include "base/unique_keys.h"
#include "train/run_files.h"

namespace co2::cli {

using nlohmann::json;

namespace {

std::string place_of(const std::filesystem::path& path, std::size_t line) {
  return line > 0 ? fmt::format(" ({}, line {})", path.string(), line) : fmt::format(" ({})", path.string());
}

[[noreturn]] void refuse_repeated(const std::string& key, const std::string& place) {
  throw OptionError(fmt::format("'{}' is there twice{}", key, place));
}

[[noreturn]] void refuse_nested(const std::string& key, const std::string& place) {
  throw OptionError(
      fmt::format("'{}' is a section or a list{}: write all options at the top level, as key and value", key, place));
}

std::vector<Setting> read_toml(const std::filesystem::path& path, const std::string& text) {
  std::vector<Setting> settings;
  try {
    const toml::table table = toml::parse(text, path.string());
    for (auto&& [key, node] : table) {
      Setting setting{std::string(key.str()), {}, std::string(key.str()), place_of(path, key.source().begin.line)};
      if (const auto* whole = node.as_integer()) {
        setting.value = whole->get();
      } else if (const auto* number = node.as_floating_point()) {
        setting.value = number->get();
      } else if (const auto* yes_no = node.as_boolean()) {
        setting.value = yes_no->get();
      } else if (const auto* string = node.as_string()) {
        setting.value = string->get();
      } else if (node.is_table() || node.is_array()) {
        refuse_nested(setting.name, setting.place);
      } else {
        throw OptionError(fmt::format("'{}' is a date or time{}: no option is one", setting.name, setting.place));
      }
      settings.push_back(std::move(setting));
    }
  } catch (const toml::parse_error& error) {
    throw OptionError(fmt::format("the TOML is not valid{}: {}", place_of(path, error.source().begin.line),
                                  std::string(error.description())));
  }
  return settings;
}

/// The parser does not tell where a key was; keys are short and few, so looking for it is good enough.
std::size_t line_of_key(const std::string& text, const std::string& key) {
  const std::string quoted = '"' + key + '"';
  for (auto at = text.find(quoted); at != std::string::npos; at = text.find(quoted, at + 1)) {
    auto next = text.find_first_not_of(" \t\r\n", at + quoted.size());
    if (next != std::string::npos && text[next] == ':') {
      return 1 +
             static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    }
  }
  return 0;
}

std::vector<Setting> read_json(const std::filesystem::path& path, const std::string& text) {
  const auto unique =
      unique_keys<json>([&](const std::string& key) { refuse_repeated(key, place_of(path, line_of_key(text, key))); });
  // Without the library's own error number.
  const auto cause_of = [](const json::exception& error) {
    const std::string cause = error.what();
    return cause.substr(std::min(cause.find("] ") + 2, cause.size()));
  };
  json object;
  try {
    object = json::parse(text, unique);
  } catch (const json::parse_error& error) {
    const auto at = static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    const auto line = 1 + std::count(text.begin(), text.begin() + at, '\n');
    throw OptionError(
        fmt::format("the JSON is not valid{}: {}", place_of(path, static_cast<std::size_t>(line)), cause_of(error)));
  } catch (const json::exception& error) {  // a number that is too large, say
    throw OptionError(fmt::format("the JSON is not valid{}: {}", place_of(path, 0), cause_of(error)));
  }
  if (!object.is_object()) throw OptionError(fmt::format("the JSON is not an object of options{}", place_of(path, 1)));
  std::vector<Setting> settings;
  for (const auto& [key, value] : object.items()) {
    Setting setting{key, value, key, place_of(path, line_of_key(text, key))};
    if (value.is_structured()) refuse_nested(key, setting.place);
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace

std::vector<Setting> read_config_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  const auto first = std::find_if_not(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) != 0; });
  const std::string extension = path.extension();
  const bool is_json = extension == ".json" || (extension != ".toml" && first != text.end() && *first == '{');
  std::vector<Setting> settings = is_json ? read_json(path, text) : read_toml(path, text);
  std::set<std::string> seen;
  for (const Setting& setting : settings) {
    std::string name = setting.name;
    std::replace(name.begin(), name.end(), '-', '_');
    if (!seen.insert(name).second) refuse_repeated(name, setting.place);
  }
  return settings;
}

std::vector<Setting> read_run_config(const std::filesystem::path& run) {
  const std::filesystem::path config = run / train::kConfigFile;
  if (run.empty() || !std::filesystem::exists(config)) {
    throw DataError(fmt::format("'{}': there is no run in it, for {} is missing", run.string(), config.string()));
  }
  return read_config_file(config);
}

}  // namespace co2::cli
