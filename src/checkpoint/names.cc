#include "checkpoint/names.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace co2::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kOld = ".old";
constexpr std::string_view kPartial = ".partial-";
constexpr std::size_t kDigits = 12;
constexpr std::size_t kLongestName = 200;  // a draft's name is longer, and systems allow 255 bytes
constexpr std::size_t kLongestToken = 64;

bool is_digit(char c) { return '0' <= c && c <= '9'; }

bool is_token(std::string_view text) {
  return !text.empty() && text.size() <= kLongestToken && std::ranges::all_of(text, [](char c) {
    return is_digit(c) || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '-' || c == '_';
  });
}

}  // namespace

std::string worker_file(int worker) { return fmt::format("worker-{:05}.safetensors", worker); }

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && std::ranges::all_of(name, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > ' ' && byte < 0x7f && c != '/' && c != '\\';
  });
}

std::string text_of(const StepName& name) {
  if (name.step < 0 || name.step > kLastStep) {
    throw DataError(fmt::format("there can be no checkpoint of step {}: 0 to {} are possible", name.step, kLastStep));
  }
  auto step = fmt::format("{}{:0{}}", kStep, name.step, kDigits);
  if (name.kind == StepName::Kind::kWhole) return step;
  if (name.kind == StepName::Kind::kOld) return fmt::format("{}{}", step, kOld);
  if (!is_token(name.token)) {
    throw DataError(fmt::format("{:?} can't be the token of a checkpoint: 1 to {} letters and digits can", name.token,
                                kLongestToken));
  }
  return fmt::format(".{}{}{}", step, kPartial, name.token);
}

std::optional<StepName> parse_step_name(std::string_view text) {
  StepName name;
  const bool hidden = text.starts_with('.');
  if (hidden) text.remove_prefix(1);
  if (!text.starts_with(kStep)) return std::nullopt;
  text.remove_prefix(kStep.size());
  if (text.size() < kDigits || !std::ranges::all_of(text.substr(0, kDigits), is_digit)) return std::nullopt;
  std::from_chars(text.data(), text.data() + kDigits, name.step);
  text.remove_prefix(kDigits);
  if (!hidden && text.empty()) return name;
  if (!hidden && text == kOld) {
    name.kind = StepName::Kind::kOld;
    return name;
  }
  if (!hidden || !text.starts_with(kPartial) || !is_token(text.substr(kPartial.size()))) return std::nullopt;
  name.kind = StepName::Kind::kPartial;
  name.token = text.substr(kPartial.size());
  return name;
}

}  // namespace co2::checkpoint
