#include "train/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/human.h"
#include "train/recipe_text.h"

namespace co2::train {
namespace {

using Json = nlohmann::ordered_json;

template <typename Member>
double sum(const RunResult& result, Member member) {
  return std::accumulate(result.workers.begin(), result.workers.end(), 0.0,
                         [&](double total, const WorkerFigures& worker) { return total + double(worker.*member); });
}

template <typename Member>
double mean(const RunResult& result, Member member) {
  return result.workers.empty() ? 0 : sum(result, member) / static_cast<double>(result.workers.size());
}

Json to_json(const WorkerFigures& figures) {
  return {{"transfer_seconds", figures.transfer_seconds},
          {"exposed_seconds", figures.exposed_seconds},
          {"compute_seconds", figures.compute_seconds},
          {"outer_seconds", figures.outer_seconds},
          {"bytes_sent", figures.bytes_sent},
          {"left_out", figures.left_out},
          {"memory", memory_json(figures.memory)},
          {"peak_megabytes", figures.peak_megabytes},
          {"threads", figures.threads},
          {"cores", figures.cores},
          {"host", figures.host}};
}

Json to_json(const Recipe& recipe) {
  Json json = {{"strategy", name(recipe.strategy)}};
  json["accumulation_steps"] = recipe.accumulation_steps;
  json["bucket_bytes"] = recipe.bucket_bytes;
  json["island_size"] = recipe.island_size;
  json["zero"] = recipe.zero;
  json["compute"] = name(recipe.compute);
  json["rate_factor"] = recipe.rate_factor;
  if (recipe.exchange != Recipe::Exchange::kProgress) return json;
  json["wire"] = name(recipe.wire);
  json["checksum"] = recipe.checksum;
  json["local_steps"] = recipe.local_steps;
  json["fragments"] = recipe.fragments;
  json["delay"] = recipe.delay ? Json(*recipe.delay) : Json(nullptr);
  json["outer_rate"] = recipe.outer_rate;
  json["momentum"] = momentum_of(recipe, recipe.local_steps);
  json["nesterov"] = recipe.nesterov;
  json["rate_units"] = recipe.rate_units;
  json["penalty"] = recipe.penalty;
  json["clip"] = recipe.clip;
  json["clip_mode"] = name(recipe.clip_mode);
  json["restart"] = name(recipe.restart);
  json["mix"] = recipe.mix;
  json["agree_moments"] = recipe.agree_moments;
  return json;
}

std::string human_loss(double loss) { return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "-"; }

/// "0 | 1": the cores of each worker, in the order of ranks, if there are few of them.
std::string cores_text(const RunResult& result) {
  std::vector<std::string> cores;
  for (const auto& worker : result.workers) cores.push_back(worker.cores);
  const std::set<std::string> different(cores.begin(), cores.end());
  if (different.size() == 1) return fmt::format("cores {} each", cores[0]);
  if (cores.size() <= 8) return fmt::format("cores {}", fmt::join(cores, " | "));
  return fmt::format("{} sets of cores", different.size());
}

}  // namespace

double RunResult::transfer_seconds() const { return mean(*this, &WorkerFigures::transfer_seconds); }
double RunResult::exposed_seconds() const { return mean(*this, &WorkerFigures::exposed_seconds); }
double RunResult::bytes_per_worker() const { return mean(*this, &WorkerFigures::bytes_sent); }

std::int64_t RunResult::left_out() const {
  std::int64_t total = 0;
  for (const WorkerFigures& worker : workers) total += worker.left_out;
  return total;
}

double RunResult::overlap() const {
  const double transfer = transfer_seconds();
  return transfer > 0 ? std::clamp(1 - exposed_seconds() / transfer, 0.0, 1.0) : 1;
}

nlohmann::ordered_json metrics_json(const TaskWords& words, const std::vector<double>& values) {
  Json json = Json::object();
  for (std::size_t i = 0; i < words.metrics.size(); ++i) {
    json[words.metrics[i]] = i < values.size() ? Json(values[i]) : Json();
  }
  return json;
}

nlohmann::ordered_json memory_json(const MemoryUse& use) {
  Json json;
  for (const auto& [name, bytes] : kMemoryFields) json[name] = use.*bytes;
  return json;
}

std::string to_text(const WorkerFigures& figures) { return to_json(figures).dump(); }

WorkerFigures figures_from_text(const std::string& text) {
  const auto json = Json::parse(text);
  WorkerFigures figures;
  json.at("transfer_seconds").get_to(figures.transfer_seconds);
  json.at("exposed_seconds").get_to(figures.exposed_seconds);
  json.at("compute_seconds").get_to(figures.compute_seconds);
  json.at("outer_seconds").get_to(figures.outer_seconds);
  json.at("bytes_sent").get_to(figures.bytes_sent);
  json.at("left_out").get_to(figures.left_out);
  for (const auto& [name, bytes] : kMemoryFields) json.at("memory").at(name).get_to(figures.memory.*bytes);
  json.at("peak_megabytes").get_to(figures.peak_megabytes);
  json.at("threads").get_to(figures.threads);
  json.at("cores").get_to(figures.cores);
  json.at("host").get_to(figures.host);
  return figures;
}

void CheckpointFigures::add(const SaveReport& report) {
  stalled_seconds += report.stalled_seconds;
  if (!report.problem.empty()) {
    ++failed;
    return;
  }
  ++made;
  bytes += report.bytes;
  largest = std::max(largest, report.bytes);
  newest = report.path;
}

std::string summary_json(const RunResult& result) {
  const double steps = static_cast<double>(std::max<std::int64_t>(result.steps, 1));
  Json json = {
      {"task", result.task},
      {"model", result.model},
      {"parameters", result.parameters},
      {"train_loss_before", result.train_loss_before},
      {"train_loss", result.train_loss},
      {"validation_loss_before", result.validation_before.loss},
      {"validation_loss", result.validation.loss},
      {"metrics_before", metrics_json(result.words, result.validation_before.metrics)},
      {"metrics", metrics_json(result.words, result.validation.metrics)},
      {"steps", result.steps},
      {"interrupted", result.interrupted},
      {"checkpoints",
       {{"made", result.checkpoints.made},
        {"failed", result.checkpoints.failed},
        {"bytes", result.checkpoints.bytes},
        {"stalled_seconds", result.checkpoints.stalled_seconds},
        {"newest", result.checkpoints.newest.string()}}},
      {"unit", result.words.unit},
      {"units", result.units},
      {"units_per_second", result.units_per_second()},
      {"training_seconds", result.training_seconds},
      {"final_exchange_seconds", result.final_exchange_seconds},
      {"wall_seconds", result.wall_seconds},
      {"transfer_seconds", result.transfer_seconds()},
      {"exposed_seconds", result.exposed_seconds()},
      {"overlap", result.overlap()},
      {"bytes_sent_per_worker", result.bytes_per_worker()},
      {"bytes_sent_per_worker_and_step", result.bytes_per_worker() / steps},
      {"memory", result.workers.empty() ? Json() : memory_json(result.workers[0].memory)},
      {"launcher", result.launcher},
      {"workers", result.workers.size()},
      {"recipe", to_json(result.recipe)},
      {"pace",
       {{"step_seconds", result.pace.step_seconds},
        {"transfer_seconds", result.pace.transfer_seconds},
        {"cost_seconds", result.pace.cost_seconds},
        {"bounded", result.pace.bounded},
        {"bits_per_second_needed", result.pace.bits_per_second_needed}}},
      {"rate_factor", result.rate_factor},
      {"left_out", result.left_out()},
      {"clipping",
       {{"exchanges", result.clipping.exchanges},
        {"clipped", result.clipping.clipped},
        {"lost", result.clipping.lost}}},
      {result.words.data, {{"name", result.data.name}, {"sha256", result.data.sha256}, {"bytes", result.data.bytes}}},
      {"per_worker", Json::array()},
      {"sample", result.sample},
  };
  for (const auto& worker : result.workers) json["per_worker"].push_back(to_json(worker));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string format_summary(const RunResult& result) {
  std::string text;
  const auto row = [&](const std::string& label, const std::string& value) {
    text += fmt::format("  {:<18} {}\n", label, value);
  };
  const double steps = static_cast<double>(std::max<std::int64_t>(result.steps, 1));
  text += result.interrupted ? "interrupted; what was measured so far:\n" : "";
  row("model", fmt::format("{} {}, {} parameters", result.task, result.model,
                           human_count(static_cast<double>(result.parameters))));
  row(result.words.data, fmt::format("{}, {}", result.data.name, human_bytes(static_cast<double>(result.data.bytes))));
  row("strategy", recipe_text(result.recipe));
  if (!result.workers.empty()) {
    const auto& first = result.workers[0];
    row("workers", fmt::format("{} ({}), {} thread{} each, {}", result.workers.size(), result.launcher, first.threads,
                               first.threads == 1 ? "" : "s", cores_text(result)));
  }
  row("train " + result.words.loss,
      fmt::format("{} -> {}", human_loss(result.train_loss_before), human_loss(result.train_loss)));
  row("validation " + result.words.loss,
      fmt::format("{} -> {}", human_loss(result.validation_before.loss), human_loss(result.validation.loss)));
  for (std::size_t i = 0; i < result.words.metrics.size(); ++i) {
    const auto value = [i](const Evaluation& of) { return i < of.metrics.size() ? of.metrics[i] : of.kUnknown; };
    row(result.words.metrics[i],
        fmt::format("{} -> {}", human_loss(value(result.validation_before)), human_loss(value(result.validation))));
  }
  row("throughput", fmt::format("{} {}/s over all workers", human_count(result.units_per_second()), result.words.unit));
  row("steps",
      fmt::format("{} in {:.1f} s ({:.1f} s in all)", result.steps, result.training_seconds, result.wall_seconds));
  row("communication",
      fmt::format("{:.2f} s, {} sent per worker ({} per step)", result.transfer_seconds(),
                  human_bytes(result.bytes_per_worker()), human_bytes(result.bytes_per_worker() / steps)));
  row("exposed", fmt::format("{:.2f} s", result.exposed_seconds()));
  if (result.bytes_per_worker() > 0) {
    row("overlap", fmt::format("{:.1f} % of the communication was hidden", 100 * result.overlap()));
  }
  if (const Clipping& clipping = result.clipping; clipping.exchanges > 0) {
    const std::string exchanges = plural(clipping.exchanges, "exchange");
    row("clip", clipping.clipped == 0 ? "took nothing from " + exchanges
                                      : fmt::format("took {:.0f} % of {} of {}",
                                                    100 * clipping.lost / static_cast<double>(clipping.clipped),
                                                    clipping.clipped, exchanges));
  }
  if (result.left_out() > 0) {
    row("left out",
        fmt::format("progress that was not finite, from {} of a fragment", plural(result.left_out(), "exchange")));
  }
  if (result.final_exchange_seconds > 0) {
    row("final average", fmt::format("{:.2f} s, once, at the end", result.final_exchange_seconds));
  }
  if (const CheckpointFigures& saved = result.checkpoints; saved.made + saved.failed > 0) {
    row("checkpoints", fmt::format("{}, {} of this worker; training stood still for {:.3f} s", saved.made,
                                   human_bytes(static_cast<double>(saved.bytes)), saved.stalled_seconds));
    if (saved.failed > 0) row("", fmt::format("{} could not be made", saved.failed));
  }
  if (!result.workers.empty()) {
    const double peak = std::ranges::max(result.workers, {}, &WorkerFigures::peak_megabytes).peak_megabytes;
    const MemoryUse& use = result.workers[0].memory;
    const auto bytes = [](std::int64_t count) { return human_bytes(static_cast<double>(count)); };
    row("memory", fmt::format("{:.0f} MB at most per worker; of it parameters {}, gradients {},", peak,
                              bytes(use.parameters), bytes(use.gradients)));
    row("", fmt::format("inner state {}, outer state {}, communication {}, checkpoint {}", bytes(use.inner_state),
                        bytes(use.outer_state), bytes(use.communication), bytes(use.checkpoint)));
  }
  if (!result.out.empty()) row("written to", result.out.string());
  if (!result.sample.empty()) text += fmt::format("\n{}\n{}\n", result.words.sample_title, result.sample);
  return text;
}

}  // namespace co2::train
