#include "cli/train_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/human.h"
#include "cli/program.h"
#include "train/task_type.h"

namespace co2::cli {

namespace {

std::string flag_names(const TrainOption& option) {
  if (option.flag == "task") return "task";
  const bool yes_no = option.kind == TrainOption::Kind::kYesNo;
  if (yes_no) return fmt::format("--{0},!--no-{0}", option.flag);
  return "--" + option.flag + (option.brief.empty() ? "" : ",--" + option.brief);
}

/// "adamw", or where tasks differ "gpt: adamw, image: sgd".
std::string default_text(const TrainOption& option, const std::vector<std::string>& tasks) {
  if (tasks.empty()) return {};
  if (option.flag == "task") return train::default_task();
  std::vector<std::string> values;
  std::vector<std::string> by_task;
  for (const std::string& task : tasks) {
    values.push_back(option.default_text(task));
    if (!values.back().empty()) by_task.push_back(fmt::format("{}: {}", task, values.back()));
  }
  const bool same = std::ranges::all_of(values, [&](const std::string& value) { return value == values[0]; });
  // Those of tasks are read from the owner's options, which another task does not have.
  return same || option.of_task ? values[0] : fmt::format("{}", fmt::join(by_task, ", "));
}

std::string description(const TrainOption& option, const std::vector<std::string>& tasks) {
  std::string text = option.help;
  const bool range =
      (option.kind != TrainOption::Kind::kYesNo && option.kind != TrainOption::Kind::kText) || !option.names.empty();
  if (range) text += fmt::format(" [{}]", option.allowed);
  const std::string value = default_text(option, tasks);
  if (!value.empty()) text += fmt::format(" (default: {})", value);
  return wrap(text, 86);
}

}  // namespace

void add_train_flag(CLI::App& sub, const TrainOption& option, const std::vector<std::string>& tasks,
                    std::vector<Setting>& settings) {
  const std::string shown = option.flag == "task" ? "task" : "--" + option.flag;
  const auto store = [&settings, &option, shown](const nlohmann::json& value) {
    settings.push_back({option.flag, value, shown, ""});
  };
  CLI::Option* added = nullptr;
  if (option.kind == TrainOption::Kind::kYesNo) {
    added = sub.add_flag_function(
        flag_names(option), [store](std::int64_t count) { store(count > 0); }, description(option, tasks));
  } else {
    added = sub.add_option_function<std::string>(
        flag_names(option), [store, &option](const std::string& text) { store(parse_text(option, text)); },
        description(option, tasks));
    added->option_text(value_name(option));
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  added->group(tasks.empty() ? "" : option.group);
}

void add_train_flags(CLI::App& sub, std::span<const std::string_view> flags, std::vector<Setting>& settings) {
  for (const TrainOption& option : all_train_options()) {
    const bool named = std::find(flags.begin(), flags.end(), option.flag) != flags.end();
    if (named || option.shapes_model) add_train_flag(sub, option, train::task_names(), settings);
  }
}

const char* value_name(const TrainOption& option) {
  const bool text = option.kind == TrainOption::Kind::kText;
  return text ? "NAME" : option.kind == TrainOption::Kind::kNumber ? "X" : "N";
}

std::vector<std::string> as_words(const std::string& flag, const nlohmann::json& value) {
  if (value.is_boolean()) return {(value.get<bool>() ? "--" : "--no-") + flag};
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (flag == "task") return {text};
  return {"--" + flag, text};
}

bool given(const std::vector<Setting>& settings, std::string_view flag) {
  return std::any_of(settings.begin(), settings.end(), [flag](const Setting& setting) {
    std::string name = setting.name;
    std::replace(name.begin(), name.end(), '_', '-');
    return name == flag && !setting.value.is_null();
  });
}

}  // namespace co2::cli
