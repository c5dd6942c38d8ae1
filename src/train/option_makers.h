#pragma once

#include <co2/options.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "train/config.h"
#include "train/option.h"
#include "train/task_type.h"

// Options of a training run, each made of its name, range, help and the field that it is about.

namespace co2::train::option {

namespace detail {

// How a field's type is read from a value of the right kind, and written. A blank is written as null.
template <typename T>
void read(const nlohmann::json& value, T& field) {
  field = value.get<T>();
}
inline void read(const nlohmann::json& value, std::chrono::seconds& field) {
  field = std::chrono::seconds(value.get<std::int64_t>());
}
inline void read(const nlohmann::json& value, std::filesystem::path& field) { field = value.get<std::string>(); }
inline void read(const nlohmann::json& value, Strategy& field) { field = strategy_from_name(value.get<std::string>()); }
inline void read(const nlohmann::json& value, Restart& field) { field = restart_from_name(value.get<std::string>()); }
inline void read(const nlohmann::json& value, Wire& field) { field = wire_from_name(value.get<std::string>()); }
inline void read(const nlohmann::json& value, Compute& field) { field = compute_from_name(value.get<std::string>()); }
inline void read(const nlohmann::json& value, ClipMode& field) {
  field = clip_mode_from_name(value.get<std::string>());
}
template <typename T>
void read(const nlohmann::json& value, std::optional<T>& field) {
  read(value, field.emplace());
}

template <typename T>
nlohmann::json write(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(name(field));
  } else {
    return field;
  }
}
inline nlohmann::json write(const std::chrono::seconds& field) { return field.count(); }
inline nlohmann::json write(const std::filesystem::path& field) {
  return field.empty() ? nlohmann::json() : nlohmann::json(field.string());
}
inline nlohmann::json write(const std::string& field) {
  return field.empty() ? nlohmann::json() : nlohmann::json(field);
}
template <typename T>
nlohmann::json write(const std::optional<T>& field) {
  return field ? write(*field) : nlohmann::json();
}

}  // namespace detail

/// A field of a TrainConfig, const or not, for the functions below.
#define CO2_FIELD(path) \
  [](auto& config) -> auto& { return config.path; }
/// The same for a field of a task's own options.
#define CO2_TASK_FIELD(Options, path) \
  [](auto& config) -> auto& { return co2::train::task_options<Options>(config).path; }

/// `access` gives the field of a TrainConfig, const or not.
template <typename Access, typename Accepts>
TrainOption make(std::string flag, TrainOption::Kind kind, std::string allowed, std::string help, Access access,
                 Accepts accepts) {
  TrainOption option;
  option.flag = std::move(flag);
  option.kind = kind;
  option.allowed = std::move(allowed);
  option.help = std::move(help);
  option.set = [access, accepts](TrainConfig& config, const nlohmann::json& value) {
    if (value.is_null()) {
      const TrainConfig defaults = defaults_of(config.task);
      access(config) = access(defaults);
      return true;
    }
    if (!accepts(value)) return false;
    detail::read(value, access(config));
    return true;
  };
  option.get = [access](const TrainConfig& config) { return detail::write(access(config)); };
  return option;
}

template <typename Access>
TrainOption whole(std::string flag, std::int64_t lowest, std::int64_t highest, std::string help, Access access) {
  const auto accepts = [=](const nlohmann::json& value) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      return false;
    return value.get<std::int64_t>() >= lowest && value.get<std::int64_t>() <= highest;
  };
  return make(std::move(flag), TrainOption::Kind::kWhole, fmt::format("{} to {}", lowest, highest), std::move(help),
              access, accepts);
}

template <typename Access>
TrainOption whole_or_auto(std::string flag, std::int64_t lowest, std::int64_t highest, std::string help,
                          Access access) {
  TrainOption option = whole(std::move(flag), lowest, highest, std::move(help), access);
  option.kind = TrainOption::Kind::kWholeOrAuto;
  option.allowed += ", or auto";
  option.set = [set = option.set, access](TrainConfig& config, const nlohmann::json& value) {
    if (value != "auto") return set(config, value);
    access(config) = kAuto;
    return true;
  };
  option.get = [access](const TrainConfig& config) {
    return access(config) == kAuto ? nlohmann::json("auto") : nlohmann::json(access(config));
  };
  return option;
}

enum class Ends { kBoth, kLowestOut, kHighestOut };

template <typename Access>
TrainOption number(std::string flag, double lowest, double highest, Ends ends, std::string help, Access access) {
  // NaN fails every comparison.
  const auto accepts = [=](const nlohmann::json& value) {
    const double x = value.get<double>();
    return (ends == Ends::kLowestOut ? x > lowest : x >= lowest) &&
           (ends == Ends::kHighestOut ? x < highest : x <= highest);
  };
  const std::string allowed = ends == Ends::kLowestOut    ? fmt::format("above {}, at most {}", lowest, highest)
                              : ends == Ends::kHighestOut ? fmt::format("at least {}, below {}", lowest, highest)
                                                          : fmt::format("{} to {}", lowest, highest);
  return make(std::move(flag), TrainOption::Kind::kNumber, allowed, std::move(help), access, accepts);
}

template <typename Access>
TrainOption one_of(std::string flag, std::vector<std::string> names, std::string help, Access access) {
  const auto accepts = [names](const nlohmann::json& value) {
    return std::find(names.begin(), names.end(), value.get<std::string>()) != names.end();
  };
  TrainOption option = make(std::move(flag), TrainOption::Kind::kText, fmt::format("{}", fmt::join(names, ", ")),
                            std::move(help), access, accepts);
  option.names = std::move(names);
  return option;
}

template <typename Access>
TrainOption text(std::string flag, std::string help, Access access) {
  const auto accepts = [](const nlohmann::json& value) { return !value.get<std::string>().empty(); };
  return make(std::move(flag), TrainOption::Kind::kText, "not empty", std::move(help), access, accepts);
}

template <typename Access>
TrainOption yes_no(std::string flag, std::string help, Access access) {
  return make(std::move(flag), TrainOption::Kind::kYesNo, "true or false", std::move(help), access,
              [](const nlohmann::json&) { return true; });
}

}  // namespace co2::train::option
