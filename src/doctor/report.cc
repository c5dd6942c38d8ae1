#include "doctor/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/human.h"
#include "lab/rate.h"
#include "lab/split.h"
#include "outer/wire_dtype.h"

namespace co2::doctor {

namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return ms < 10     ? fmt::format("{:.2f} ms", ms)
         : ms < 1000 ? fmt::format("{:.1f} ms", ms)
                     : fmt::format("{:.2f} s", seconds);
}

const char* in_words(Level level) {
  switch (level) {
    case Level::kOk: return "OK";
    case Level::kWarn: return "WARN";
    case Level::kFail: return "FAIL";
  }
  return "?";
}

std::int64_t hosts_of(const Report& report) {
  std::set<std::string> hosts;
  for (const WorkerFacts& worker : report.workers) hosts.insert(worker.host);
  return std::ssize(hosts);
}

class Text {
 public:
  void section(const std::string& title) { text_ += fmt::format("\n{}\n", title); }
  void row(const std::string& label, const std::string& value) { text_ += fmt::format("  {:<13} {}\n", label, value); }
  void line(const std::string& value) { text_ += value + "\n"; }
  const std::string& get() const { return text_; }

 private:
  std::string text_;
};

void add_measured(Text& text, const Report& report) {
  const Measurements& m = *report.measurements;
  const Situation& s = m.situation;
  const auto [fastest, slowest] =
      std::minmax_element(report.workers.begin(), report.workers.end(),
                          [](const auto& a, const auto& b) { return a.step.median < b.step.median; });
  text.section("Measured");
  std::string step = fmt::format("{} (lowest {}, highest {})", milliseconds(slowest->step.median),
                                 milliseconds(slowest->step.lowest), milliseconds(slowest->step.highest));
  if (report.workers.size() > 1) {
    step += fmt::format(" on rank {}, the slowest; {} on rank {}", slowest->rank, milliseconds(fastest->step.median),
                        fastest->rank);
  }
  text.row("step", step);
  if (!m.network.transfers.empty()) {
    std::vector<std::string> sizes;
    for (const Transfer& t : m.network.transfers) {
      sizes.push_back(fmt::format("{} in {}", human_bytes(static_cast<double>(t.bytes)), milliseconds(t.seconds)));
    }
    text.row("all-reduce", fmt::format("nothing in {}, {}: {}", milliseconds(m.network.latency), fmt::join(sizes, ", "),
                                       lab::format_rate(m.network.transfers.back().bits_per_second)));
    text.row("exchange", fmt::format("{} for the whole model; takes from training {} for outer passes, {} for TCP",
                                     milliseconds(s.transfer), milliseconds(s.outer), milliseconds(s.cycles)));
  }
  text.row("memory",
           fmt::format("{} per worker: {} parameters, gradients, optimizer and outer state, {} the rest",
                       human_bytes(m.memory.total()), human_bytes(m.memory.state), human_bytes(m.memory.rest)));
}

/// Strategies that come out alike share a row, which fits a terminal of 80 columns.
void add_expected(Text& text, const Report& report) {
  const Measurements& m = *report.measurements;
  struct Row {
    std::vector<std::string> names;
    Expectation expectation;
  };
  std::vector<Row> rows;
  for (const Expectation& e : m.expectations) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.expectation.units_per_second == e.units_per_second;
    });
    Row& row = same == rows.end() ? rows.emplace_back(Row{{}, e}) : *same;
    row.names.emplace_back(name(e.strategy));
  }
  const auto in_lines = [](const Row& row) {
    constexpr std::size_t kMostForNames = 56;
    return wrap(fmt::format("{}", fmt::join(row.names, ", ")), kMostForNames);
  };
  std::size_t width = 0;
  for (const Row& row : rows) {
    for (const std::string_view line : lab::split(in_lines(row), '\n')) width = std::max(width, line.size());
  }
  text.section(fmt::format("{:<{}} {:>12}  of none",
                           fmt::format("Expected with τ = {}", m.recommendation->plan.local_steps), width + 2,
                           report.unit + "/s"));
  for (const Row& row : rows) {
    const std::string names = in_lines(row);
    const std::vector<std::string_view> lines = lab::split(names, '\n');
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) text.line(fmt::format("  {}", lines[i]));
    text.line(fmt::format("  {:<{}} {:>12}  {:7.3f}", lines.back(), width, thousands(row.expectation.units_per_second),
                          row.expectation.of_none));
  }
}

Json to_json(const WorkerFacts& worker) {
  return {{"rank", worker.rank},
          {"host", worker.host},
          {"processor", worker.processor},
          {"co2_version", worker.co2_version},
          {"torch_version", worker.torch_version},
          {"blas", worker.blas},
          {"cores", worker.cores},
          {"core_quota", worker.core_quota},
          {"threads", worker.threads},
          {"interface", worker.interface.name},
          {"address", worker.interface.address},
          {"step",
           {{"median_seconds", worker.step.median},
            {"lowest_seconds", worker.step.lowest},
            {"highest_seconds", worker.step.highest},
            {"count", worker.step.count}}},
          {"product_flops", worker.product_flops},
          {"multiply_add_flops", worker.multiply_add_flops},
          {"memory_available_bytes", worker.memory_available},
          {"container_memory_bytes", worker.container_memory},
          {"peak_bytes", worker.peak_bytes}};
}

Json to_json(const NetworkFacts& network, const Situation& situation) {
  Json json = {{"latency_seconds", network.latency}, {"transfers", Json::array()}};
  for (const Transfer& t : network.transfers) {
    json["transfers"].push_back({{"bytes", t.bytes}, {"seconds", t.seconds}, {"bits_per_second", t.bits_per_second}});
  }
  json["transfer_seconds"] = situation.transfer;
  json["wire_bytes"] = situation.wire_bytes;
  json["outer_seconds"] = situation.outer;
  json["cycles_seconds"] = network.model_cycles;
  json["cost_seconds"] = situation.outer + situation.cycles;
  json["clocks"] = Json::array();
  for (const ClockOffset& clock : network.clocks) {
    json["clocks"].push_back({{"rank", clock.rank}, {"offset_seconds", clock.seconds}, {"error_seconds", clock.error}});
  }
  return json;
}

}  // namespace

std::string in_text(const Report& report) {
  Text text;
  text.line(fmt::format(
      "{} {}, {:.2f} M parameters ({} on the wire), batch {}{} {}; {} on {}", report.task, report.model,
      static_cast<double>(report.parameters) / 1e6,
      human_bytes(static_cast<double>(report.parameters * wire_element_bytes(report.recipe.wire, at::kFloat))),
      report.batch, report.units_per_sample == 1 ? "" : fmt::format(" × {}", report.units_per_sample), report.unit,
      plural(std::ssize(report.workers), "worker"), plural(hosts_of(report), "host")));
  if (report.measurements) {
    add_measured(text, report);
    if (report.measurements->recommendation) {
      text.line("\nRecommended: " + report.measurements->recommendation_text);
      add_expected(text, report);
    } else {
      text.line("\nRecommended: nothing to choose: one worker has nobody to exchange with");
    }
  }
  text.section("Checks");
  for (const Check& check : report.checks) {
    text.line(fmt::format("  {:<5} {:<11} {}", in_words(check.level), check.name, check.finding));
    if (!check.advice.empty()) text.line(fmt::format("  {:<17} → {}", "", check.advice));
  }
  return text.get();
}

std::string in_json(const Report& report) {
  Json json = {
      {"task", report.task}, {"model", report.model}, {"parameters", report.parameters}, {"batch", report.batch}};
  for (const auto& [key, value] : report.shape) json[key] = value;
  json["wire"] = name(report.recipe.wire);
  json["workers"] = json["checks"] = Json::array();
  for (const WorkerFacts& worker : report.workers) json["workers"].push_back(to_json(worker));
  for (const Check& check : report.checks) {
    json["checks"].push_back(
        {{"name", check.name}, {"level", in_words(check.level)}, {"finding", check.finding}, {"advice", check.advice}});
  }
  if (report.measurements) {
    const Measurements& m = *report.measurements;
    json["step_seconds"] = m.situation.step;
    json["memory"] = {{"state_bytes", m.memory.state}, {"rest_bytes", m.memory.rest}};
    if (m.recommendation) {
      const Recommendation& r = *m.recommendation;
      json["network"] = to_json(m.network, m.situation);
      json["recommendation"] = {{"local_steps", r.plan.local_steps},
                                {"fragments", r.plan.fragments},
                                {"bounded", r.bounded},
                                {"bits_per_second_needed", r.bits_per_second_needed},
                                {"cost_share", r.cost_share},
                                {"text", m.recommendation_text}};
      json["expected"] = Json::array();
      for (const Expectation& e : m.expectations) {
        json["expected"].push_back({{"strategy", name(e.strategy)},
                                    {report.unit + "_per_second", e.units_per_second},
                                    {"of_none", e.of_none}});
      }
    }
  }
  json["failed"] = any_failed(report.checks);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace co2::doctor
