#include "cli/train_options.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "base/closest_name.h"
#include "cli/program.h"
#include "options/recipe.h"
#include "train/task_type.h"
#include "train/validate.h"

namespace co2::cli {

using nlohmann::json;
using train::TrainConfig;
using Kind = TrainOption::Kind;

namespace {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

const TrainOption* find(const std::vector<TrainOption>& options, const std::string& name) {
  const auto found = std::ranges::find(options, with_dashes(name), &TrainOption::flag);
  return found == options.end() ? nullptr : &*found;
}

[[noreturn]] void throw_unknown(const std::string& task, const Setting& setting) {
  std::vector<std::string> others;
  for (const std::string& other : train::task_names()) {
    if (find(train_options(other), setting.name) != nullptr) others.push_back(other);
  }
  if (!others.empty()) {
    throw OptionError(fmt::format("{} is no option of the task {}{}: it is one of {}", setting.shown_as, task,
                                  setting.place, fmt::join(others, ", ")));
  }
  // Compared in the spelling that the user chose.
  const bool dashes = setting.name.find('-') != std::string::npos;
  std::vector<std::string> known;
  for (const TrainOption& option : train_options(task)) known.push_back(dashes ? option.flag : option.key());
  throw OptionError(fmt::format("unknown option '{}'{}{} 'co2 train --help' lists all", setting.shown_as, setting.place,
                                did_you_mean(setting.name, known)));
}

std::string kind_in_words(Kind kind) {
  switch (kind) {
    case Kind::kWhole: return "a whole number";
    case Kind::kWholeOrAuto: return "a whole number or 'auto'";
    case Kind::kNumber: return "a number";
    case Kind::kYesNo: return "true or false";
    case Kind::kText: return "a text";
  }
  return "?";
}

bool is_kind(const json& value, Kind kind) {
  switch (kind) {
    case Kind::kWhole: return value.is_number_integer();
    case Kind::kWholeOrAuto: return value.is_number_integer() || value == "auto";
    case Kind::kNumber: return value.is_number();
    case Kind::kYesNo: return value.is_boolean();
    case Kind::kText: return value.is_string();
  }
  return false;
}

std::string in_words(const json& value) {
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());  // JSON has no word for NaN
  return value.is_string() ? fmt::format("'{}'", value.get<std::string>()) : value.dump();
}

[[noreturn]] void throw_not_allowed(const TrainOption& option, const Setting& setting) {
  if (!option.names.empty()) {
    throw OptionError(fmt::format("{} {} is not known{}{} Allowed: {}", setting.shown_as, in_words(setting.value),
                                  setting.place, did_you_mean(setting.value.get<std::string>(), option.names),
                                  fmt::join(option.names, ", ")));
  }
  throw OptionError(fmt::format("{} = {} is not allowed{}: it must be {}", setting.shown_as, in_words(setting.value),
                                setting.place, option.allowed));
}

}  // namespace

void apply(TrainConfig& config, const Setting& setting) {
  const TrainOption* option = find(train_options(config.task), setting.name);
  if (option == nullptr) throw_unknown(config.task, setting);
  if (setting.value.is_null()) {
    option->set(config, setting.value);
    return;
  }
  if (!is_kind(setting.value, option->kind)) {
    // 5.0 stays 5.0 here: "expects a whole number, not 5" would be a riddle.
    const bool fraction = setting.value.is_number_float() && std::isfinite(setting.value.get<double>());
    throw OptionError(fmt::format("{} expects {}, not {}{}", setting.shown_as, kind_in_words(option->kind),
                                  fraction ? setting.value.dump() : in_words(setting.value), setting.place));
  }
  if (!option->set(config, setting.value)) throw_not_allowed(*option, setting);
}

void apply_all(TrainConfig& config, const std::vector<Setting>& settings) {
  for (const bool task : {true, false}) {
    for (const Setting& setting : settings) {
      if ((setting.name == "task") == task) apply(config, setting);
    }
    if (task) config = train::defaults_of(config.task);
  }
}

json parse_text(const TrainOption& option, const std::string& text) {
  const auto parse = [&](auto& number) {
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
  };
  if (option.kind == Kind::kWholeOrAuto && text == "auto") return text;
  if (option.kind == Kind::kWhole || option.kind == Kind::kWholeOrAuto) {
    std::int64_t number = 0;
    if (parse(number)) return number;
    std::uint64_t large = 0;
    if (parse(large)) return large;
  } else if (option.kind == Kind::kNumber) {
    double number = 0;
    if (parse(number)) return number;
  } else if (option.kind == Kind::kYesNo) {
    if (text == "true" || text == "false") return text == "true";
  } else {
    require_utf8("--" + option.flag, text);
    return text;
  }
  throw OptionError(fmt::format("--{} expects {}{}{}, not '{}'", option.flag, kind_in_words(option.kind),
                                option.allowed.empty() ? "" : ", ", option.allowed, text));
}

void check(const TrainConfig& config) {
  resolve(config.sync);
  train::validate(config);
}

nlohmann::ordered_json to_json(const TrainConfig& config) {
  TrainConfig complete = config;
  complete.sync = filled_in(config.sync);
  nlohmann::ordered_json result;
  for (const TrainOption& option : train_options(config.task)) result[option.key()] = option.get(complete);
  return result;
}

}  // namespace co2::cli
