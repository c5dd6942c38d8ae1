#include "lab/result.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"

namespace co2::lab {

namespace {

using nlohmann::json;

double number(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : Figures::kUnknown;
}

std::optional<int> whole(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_integer() ? std::optional(at->get<int>()) : std::nullopt;
}

struct Line {
  double step = 0;
  double seconds = 0;    // of training
  double loss_step = 0;  // the last step that the loss is about
  double loss = Figures::kUnknown;
};

/// Lines come some steps after the loss that they tell: when was that step?
double time_of(const std::vector<Line>& lines, double step) {
  double earlier_step = 0;
  double earlier_seconds = 0;
  for (const Line& line : lines) {
    if (line.step >= step) {
      if (line.step == earlier_step) return line.seconds;
      const double share = (step - earlier_step) / (line.step - earlier_step);
      return earlier_seconds + share * (line.seconds - earlier_seconds);
    }
    earlier_step = line.step;
    earlier_seconds = line.seconds;
  }
  return earlier_seconds;
}

std::vector<CurvePoint> smooth(const std::vector<Line>& lines, double steps) {
  std::vector<CurvePoint> curve;
  const double window = std::max(steps / 20, 1.0);
  for (auto end = lines.begin(); end != lines.end(); ++end) {
    if (!std::isfinite(end->loss) || (end != lines.begin() && end->loss_step == std::prev(end)->loss_step)) continue;
    double sum = 0;
    int count = 0;
    for (auto line = lines.begin(); line <= end; ++line) {
      if (!std::isfinite(line->loss) || line->loss_step <= end->loss_step - window) continue;
      sum += line->loss;
      ++count;
    }
    curve.push_back({time_of(lines, end->loss_step), sum / count, end->loss_step});
  }
  return curve;
}

std::vector<Line> read_lines(const std::filesystem::path& path, std::string& last) {
  std::istringstream stream(read_file(path));
  std::vector<Line> lines;
  std::string text;
  while (std::getline(stream, text)) {
    const json object = json::parse(text, nullptr, false);
    if (!object.is_object()) throw DataError(fmt::format("{}: '{}' is no line of metrics", path.string(), text));
    last = text;
    Line line;
    line.step = number(object, "step");
    line.loss_step = object.contains("train_loss_step") ? number(object, "train_loss_step") : line.step;
    line.seconds = number(object, "training_seconds");
    line.loss = number(object, "train_loss");
    if (!std::isfinite(line.step) || !std::isfinite(line.seconds)) continue;
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

double Figures::overlap() const {
  if (!(transfer_seconds > 0)) return kUnknown;
  return std::clamp(1 - exposed_seconds / transfer_seconds, 0.0, 1.0);
}

double Figures::per_step(double sum) const { return steps > 0 ? sum / static_cast<double>(steps) : kUnknown; }

Figures read_figures(const std::filesystem::path& folder, const train::TaskWords& words) {
  const json summary = json::parse(read_file(folder / "summary.json"), nullptr, false);
  if (!summary.is_object()) throw DataError(fmt::format("{} is no summary", (folder / "summary.json").string()));
  Figures figures;
  figures.units_per_second = number(summary, "units_per_second");
  figures.training_seconds = number(summary, "training_seconds");
  figures.final_exchange_seconds = number(summary, "final_exchange_seconds");
  figures.steps = summary.value("steps", 0L);
  figures.transfer_seconds = number(summary, "transfer_seconds");
  figures.exposed_seconds = number(summary, "exposed_seconds");
  figures.bytes_per_worker = number(summary, "bytes_sent_per_worker");
  figures.train_loss = number(summary, "train_loss");
  figures.validation_loss = number(summary, "validation_loss");
  const json metrics = summary.value("metrics", json::object());
  for (const std::string& name : words.metrics) figures.metrics.push_back(number(metrics, name.c_str()));
  figures.unit = summary.value("unit", words.unit);
  figures.parameters = summary.value("parameters", 0L);
  if (summary.contains(words.data) && summary[words.data].is_object()) {
    figures.data = summary[words.data].value("name", "");
  }
  // Ours has them in its recipe, a peer at the top.
  const json& recipe = summary.contains("recipe") ? summary["recipe"] : summary;
  figures.local_steps = whole(recipe, "local_steps");
  figures.fragments = whole(recipe, "fragments");
  if (!(figures.units_per_second > 0) || figures.steps <= 0) {
    throw DataError(fmt::format("{} has no units_per_second or no steps", (folder / "summary.json").string()));
  }
  std::string last;
  const auto lines = read_lines(folder / "metrics.jsonl", last);
  figures.curve = smooth(lines, static_cast<double>(figures.steps));
  // The recipe is what the run began with; the number of local steps may have been adapted since.
  if (figures.local_steps && !last.empty()) {
    if (const auto in_force = whole(json::parse(last), "local_steps"); in_force && *in_force > 0) {
      figures.local_steps = in_force;
    }
  }
  return figures;
}

std::optional<double> seconds_to(const std::vector<CurvePoint>& curve, double target) {
  const auto reached = std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& p) { return p.loss <= target; });
  return reached == curve.end() ? std::nullopt : std::optional(reached->seconds);
}

double lowest(const std::vector<CurvePoint>& curve) {
  double result = Figures::kUnknown;
  for (const CurvePoint& point : curve) result = std::fmin(result, point.loss);
  return result;
}

}  // namespace co2::lab
