#include "study/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/human.h"

namespace co2::study {

namespace {

using nlohmann::ordered_json;
using Line = std::vector<std::string>;

std::string loss_text(const Sample& sample) {
  if (sample.count == 0) return "-";
  return sample.count == 1 ? fmt::format("{:.4f}", sample.mean)
                           : fmt::format("{:.4f} ± {:.4f}", sample.mean, sample.deviation);
}

bool tuned(const Findings& findings) { return !findings.rows.front().row->trials[0].tries.empty(); }

/// The first line is the heading.
std::vector<Line> main_table(const StudyFile& file, const Findings& findings) {
  Line heading{"row", "seeds", file.metric, "against " + file.reference, "p", "verdict", "sent per step"};
  if (findings.compute_seconds) heading.push_back("s per step at " + file.link->text);
  if (tuned(findings)) heading.push_back("chosen");
  std::vector<Line> table{heading};
  for (const Finding& finding : findings.rows) {
    const auto& test = finding.test;
    Line line{finding.row->label,
              std::to_string(finding.metric.count),
              loss_text(finding.metric),
              test ? fmt::format("{:+.2f} %", finding.percent) : "",
              test && test->pairs > 1 ? fmt::format("{:.3f}", test->p) : "",
              verdict(finding, file.higher_is_better),
              finding.results.empty() ? "-" : human_bytes(finding.results.front()->bytes_per_step)};
    if (findings.compute_seconds) {
      line.push_back(finding.step_seconds ? fmt::format("{:.4f}", *finding.step_seconds) : "-");
    }
    if (tuned(findings)) line.push_back(finding.trial() != nullptr ? finding.trial()->text() : "-");
    table.push_back(line);
  }
  return table;
}

std::vector<Line> trial_table(const StudyFile& file, const Findings& findings) {
  std::vector<Line> table{{"row", "trial", file.metric, ""}};
  for (const Finding& finding : findings.rows) {
    for (std::size_t i = 0; i < finding.row->trials.size(); ++i) {
      const double score = finding.selection.scores[i];
      table.push_back({i == 0 ? finding.row->label : "", finding.row->trials[i].text(),
                       std::isfinite(score) ? fmt::format("{:.4f}", score) : "-",
                       finding.selection.trial == i ? "chosen" : ""});
    }
  }
  return table;
}

std::string runs(std::size_t count) { return plural(static_cast<std::int64_t>(count), "run"); }

std::vector<std::string> notes(const StudyFile& file, const Findings& findings) {
  std::vector<std::string> notes;
  for (const Finding& finding : findings.rows) {
    const std::string& label = finding.row->label;
    if (finding.missing > 0) notes.push_back(fmt::format("{}: {} missing", label, runs(finding.missing)));
    if (finding.failed > 0) notes.push_back(fmt::format("{}: {} failed", label, runs(finding.failed)));
    if (finding.trial() == nullptr) continue;
    for (const std::string& edge : at_the_edge(*finding.row, *finding.trial())) {
      notes.push_back(fmt::format("{}: {}; a better one may lie beyond", label, edge));
    }
  }
  if (findings.versions.size() > 1) {
    std::vector<std::string> all;
    for (const auto& [version, count] : findings.versions) all.push_back(fmt::format("{} of {}", count, version));
    notes.push_back(fmt::format("the runs are of several versions of co2: {}", fmt::join(all, ", ")));
  }
  if (file.link && !findings.compute_seconds) {
    notes.push_back("no run of the reference is done, so nobody knows yet how long a step takes");
  }
  return notes;
}

/// Sentences that say how the figures came about.
std::vector<std::string> about(const StudyFile& file, const Findings& findings) {
  std::vector<std::string> text{fmt::format("Mean ± standard deviation over seeds."),
                                fmt::format("Better or worse than {}: a paired t-test over the seeds that both have, "
                                            "two-sided, gives p < {:g}; otherwise the two are within noise.",
                                            file.reference, PairedTest::kLevel)};
  if (file.tune) {
    std::string settings;
    for (const auto& [option, value] : file.tune->settings) {
      settings += fmt::format(", {} = {}", option, value.value.dump());
    }
    text.push_back(
        fmt::format("Every row was given {} trials (seed{} {}{}), and then run with the values of the best one.",
                    findings.rows.front().row->trials.size(), file.tune->seeds.size() == 1 ? "" : "s",
                    fmt::join(file.tune->seeds, ", "), settings));
  }
  if (findings.done == 0) return text;
  std::vector<std::string> versions;
  for (const auto& [version, count] : findings.versions) versions.push_back(version);
  text.push_back(fmt::format("{}, {} in all, each on one core of {}; co2 {}.", runs(findings.done),
                             clock_time(findings.wall_seconds), fmt::join(findings.processors, ", "),
                             fmt::join(versions, ", ")));
  return text;
}

/// Columns of the screen: bytes that go on with a character take none.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string aligned(const std::vector<Line>& table) {
  std::vector<std::size_t> widths(table[0].size());
  for (const Line& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  }
  std::string text;
  for (const Line& line : table) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      row += "  " + line[i] + std::string(widths[i] - width_of(line[i]), ' ');
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string with_pipes(const std::vector<Line>& table) {
  std::string text;
  for (std::size_t i = 0; i < table.size(); ++i) {
    text += fmt::format("| {} |\n", fmt::join(table[i], " | "));
    if (i > 0) continue;
    for (std::size_t column = 0; column < table[0].size(); ++column) text += "|---";
    text += "|\n";
  }
  return text;
}

}  // namespace

std::string report_text(const StudyFile& file, const Findings& findings) {
  std::string text = fmt::format("{}\n{}\n\n{}", file.name, fmt::join(about(file, findings), "\n"),
                                 aligned(main_table(file, findings)));
  if (tuned(findings)) text += "\nTrials\n" + aligned(trial_table(file, findings));
  for (const std::string& note : notes(file, findings)) text += "\n" + note;
  return text + "\n";
}

std::string report_markdown(const StudyFile& file, const Findings& findings) {
  std::string text = fmt::format("## {}\n\n{}\n\n{}", file.name, fmt::join(about(file, findings), " "),
                                 with_pipes(main_table(file, findings)));
  const auto all = notes(file, findings);
  if (!all.empty()) text += fmt::format("\n- {}\n", fmt::join(all, "\n- "));
  if (tuned(findings)) {
    text += fmt::format("\n<details><summary>All trials</summary>\n\n{}\n</details>\n",
                        with_pipes(trial_table(file, findings)));
  }
  return text;
}

ordered_json report_json(const StudyFile& file, const Findings& findings) {
  ordered_json rows = ordered_json::array();
  for (const Finding& finding : findings.rows) {
    ordered_json row = {{"label", finding.row->label},
                        {"seeds", finding.metric.count},
                        {"mean", finding.metric.mean},
                        {"deviation", finding.metric.deviation},
                        {"verdict", verdict(finding, file.higher_is_better)},
                        {"missing", finding.missing},
                        {"failed", finding.failed},
                        {"diverged", finding.diverged}};
    if (finding.test) {
      row["test"] = {{"name", "paired t-test, two-sided"},
                     {"level", PairedTest::kLevel},
                     {"pairs", finding.test->pairs},
                     {"difference", finding.test->difference},
                     {"percent", finding.percent},
                     {"t", finding.test->t},
                     {"p", finding.test->p}};
    }
    if (finding.step_seconds) row["step_seconds"] = *finding.step_seconds;
    if (tuned(findings)) {
      row["chosen"] = finding.trial() != nullptr ? finding.trial()->values : ordered_json();
      for (std::size_t i = 0; i < finding.row->trials.size(); ++i) {
        row["trials"].push_back({{"values", finding.row->trials[i].values}, {"score", finding.selection.scores[i]}});
      }
    }
    rows.push_back(std::move(row));
  }
  ordered_json json = {{"name", file.name},
                       {"metric", file.metric},
                       {"reference", file.reference},
                       {"better", file.higher_is_better ? "higher" : "lower"},
                       {"runs", findings.done},
                       {"wall_seconds", findings.wall_seconds},
                       {"versions", findings.versions},
                       {"notes", notes(file, findings)}};
  if (findings.compute_seconds) {
    json["link"] = {{"bits_per_second", file.link->rate.bits_per_second},
                    {"compute_seconds", *findings.compute_seconds}};
  }
  json["rows"] = std::move(rows);
  return json;
}

}  // namespace co2::study
