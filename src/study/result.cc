#include "study/result.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "base/closest_name.h"
#include "base/files.h"
#include "lab/result.h"
#include "processes/placement.h"
#include "study/version.h"
#include "train/run_files.h"

namespace co2::study {

using nlohmann::ordered_json;

namespace {

constexpr const char* kValidation = "validation_loss";
constexpr const char* kTraining = "train_loss";

double number_or_nan(const ordered_json& value) { return value.is_number() ? value.get<double>() : Result::kUnknown; }

/// Losses have no more digits than these that mean something, and a file of many curves is smaller with fewer.
double rounded(double value) { return std::round(value * 1e5) / 1e5; }

/// Evenly thinned, the last point included.
std::vector<CurvePoint> thinned(const std::vector<lab::CurvePoint>& curve) {
  std::vector<CurvePoint> result;
  const std::size_t count = std::min(curve.size(), Result::kCurvePoints);
  for (std::size_t i = 1; i <= count; ++i) {
    const lab::CurvePoint& point = curve[i * curve.size() / count - 1];
    result.push_back({point.step, rounded(point.loss)});
  }
  return result;
}

}  // namespace

double Result::metric(const std::string& name) const {
  const auto found = metrics.find(name);
  if (found != metrics.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [each, value] : metrics) known.push_back(each);
  throw DataError(fmt::format("run {} has no metric '{}'{} It has: {}", key, name, did_you_mean(name, known),
                              fmt::join(known, ", ")));
}

double Result::samples_per_step() const {
  return config.at("batch").get<double>() * config.at("accumulation_steps").get<double>() * workers();
}

Pattern Result::pattern() const {
  const bool blocking = recipe.contains("delay") && recipe["delay"] == 0;
  return pattern_of(recipe.at("strategy").get<std::string>(), blocking);
}

ordered_json to_json(const Result& result) {
  ordered_json json = {{"key", result.key}};
  if (!result.done()) json["failure"] = result.failure;
  if (result.done()) {
    json["metrics"] = ordered_json(result.metrics);  // what is not finite becomes null
    json["training_seconds"] = result.training_seconds;
    json["wall_seconds"] = result.wall_seconds;
    json["bytes_per_step"] = result.bytes_per_step;
    json["parameters"] = result.parameters;
    json["recipe"] = result.recipe;
    json["data"] = result.data;
  }
  json["version"] = result.version;
  json["host"] = result.host;
  json["processor"] = result.processor;
  json["finished"] = result.finished;
  json["config"] = result.config;
  if (!result.done()) return json;
  json["curve"] = ordered_json::array();
  for (const CurvePoint& point : result.curve) json["curve"].push_back({point.step, point.loss});
  return json;
}

Result result_from_json(const ordered_json& json) {
  Result result;
  json.at("key").get_to(result.key);
  json.at("version").get_to(result.version);
  json.at("host").get_to(result.host);
  json.at("processor").get_to(result.processor);
  json.at("finished").get_to(result.finished);
  result.config = json.at("config");
  result.failure = json.value("failure", "");
  if (!result.done()) return result;
  for (const auto& [name, value] : json.at("metrics").items()) result.metrics[name] = number_or_nan(value);
  json.at("training_seconds").get_to(result.training_seconds);
  json.at("wall_seconds").get_to(result.wall_seconds);
  json.at("bytes_per_step").get_to(result.bytes_per_step);
  json.at("parameters").get_to(result.parameters);
  result.recipe = json.at("recipe");
  result.data = json.at("data");
  for (const auto& point : json.at("curve")) {
    result.curve.push_back({point.at(0).get<double>(), number_or_nan(point.at(1))});
  }
  return result;
}

std::vector<std::string> metric_names(const train::TaskWords& words) {
  std::vector<std::string> names = {kValidation, kTraining};
  names.insert(names.end(), words.metrics.begin(), words.metrics.end());
  return names;
}

Result read_result(const std::filesystem::path& folder, const train::TaskWords& words) {
  const lab::Figures figures = lab::read_figures(folder, words);
  const auto summary = ordered_json::parse(read_file(folder / train::kSummaryFile));
  Result result;
  result.metrics = {{kValidation, figures.validation_loss}, {kTraining, figures.train_loss}};
  if (summary.contains("metrics")) {
    for (const auto& [name, value] : summary["metrics"].items()) result.metrics[name] = number_or_nan(value);
  }
  result.training_seconds = figures.training_seconds;
  result.bytes_per_step = figures.per_step(figures.bytes_per_worker);
  result.parameters = figures.parameters;
  result.recipe = summary.at("recipe");
  result.data = summary.value(words.data, ordered_json());
  result.curve = thinned(figures.curve);
  return result;
}

void sign(Result& result) {
  result.version = version();
  result.host = train::host_name();
  result.processor = processes::processor_name();
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  result.finished = text.data();
}

}  // namespace co2::study
