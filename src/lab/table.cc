#include "lab/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/human.h"

namespace co2::lab {

namespace {

/// Columns on a terminal: our own signs are all one wide.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string in(const char* format, double value) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

std::string speed(const Spread& spread) {
  if (spread.count == 0) return "-";
  if (spread.count == 1) return thousands(spread.median);
  return fmt::format("{} ±{:.1f} %", thousands(spread.median), 100 * spread.half_range() / spread.median);
}

std::string bytes(double value) { return std::isfinite(value) ? human_bytes(value) : "-"; }

/// Of the item that came farthest: whoever ended the lab did not let it do all.
int most_runs(const Table& table) {
  int most = 0;
  for (const Row& row : table.rows) most = std::max(most, row.runs());
  return most;
}

std::string count(const std::optional<int>& number) { return number ? std::to_string(*number) : "-"; }

struct Column {
  std::string title;
  std::function<std::string(const Row&)> cell;
};

std::vector<Column> columns(const Table& table, const LabOptions& options) {
  std::vector<Column> result = {
      {"strategy", [&](const Row& row) { return options.items[row.item].label; }},
      {options.words.unit + "/s", [](const Row& row) { return speed(row.units_per_second); }},
      {"of none", [](const Row& row) { return in("{:.3f}", row.to_none.median); }},
      {"of ddp", [](const Row& row) { return in("{:.2f}", row.to_ddp.median); }},
      {"transfer ms", [](const Row& row) { return in("{:.1f}", row.transfer_ms.median); }},
      {"exposed ms", [](const Row& row) { return in("{:.1f}", row.exposed_ms.median); }},
      {"overlap", [](const Row& row) { return percent(row.overlap.median); }},
      {"sent", [](const Row& row) { return bytes(row.bytes_per_step.median); }},
      {"τ", [](const Row& row) { return count(row.local_steps); }},
      {"P", [](const Row& row) { return count(row.fragments); }},
      {"train " + options.words.loss, [](const Row& row) { return in("{:.4f}", row.train_loss.median); }},
      {"validation", [](const Row& row) { return in("{:.4f}", row.validation_loss.median); }},
  };
  for (std::size_t i = 0; i < options.words.metrics.size(); ++i) {
    result.push_back({options.words.metrics[i], [i](const Row& row) {
                        return i < row.metrics.size() ? in("{:.4f}", row.metrics[i].median) : "-";
                      }});
  }
  result.push_back(
      {std::isfinite(table.target_loss) ? fmt::format("s to {:.3f}", table.target_loss) : "s to " + options.words.loss,
       [](const Row& row) { return in("{:.1f}", row.seconds_to_target.median); }});
  return result;
}

}  // namespace

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", std::floor(1000 * share) / 10) : "-";
}

std::string format_table(const Table& table, const LabOptions& options) {
  const int repeats = options.repeats;
  const int most = most_runs(table);
  std::string text = fmt::format("{}; median of {}{}; transfer, exposed and sent are per worker and step\n",
                                 options.scenarios[table.scenario].text,
                                 most < repeats ? fmt::format("{} of ", most) : "", plural(repeats, "repeat"));
  const auto all = columns(table, options);
  std::vector<std::size_t> widths;
  for (const Column& column : all) {
    std::size_t width = width_of(column.title);
    for (const Row& row : table.rows) width = std::max(width, width_of(column.cell(row)));
    widths.push_back(width);
  }
  const auto line = [&](const std::function<std::string(const Column&)>& cell) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string value = cell(all[i]);
      const std::string padding(widths[i] - width_of(value), ' ');
      text += i == 0 ? "  " + value + padding : "  " + padding + value;
    }
    text += '\n';
  };
  line([](const Column& column) { return column.title; });
  for (const Row& row : table.rows) {
    line([&](const Column& column) { return column.cell(row); });
  }
  for (const Row& row : table.rows) {
    const std::string& label = options.items[row.item].label;
    if (row.failed > 0) text += fmt::format("  {}: {} of {} failed\n", label, row.failed, plural(row.runs(), "run"));
    if (row.runs() < most) text += fmt::format("  {}: only {}\n", label, plural(row.runs(), "run"));
  }
  return text;
}

std::string format_links(const std::vector<LinkCheck>& links) {
  std::vector<std::string> parts;
  for (const LinkCheck& link : links) {
    parts.push_back(fmt::format("{}→{} {} (asked {}){}", link.from, link.to, format_rate(link.measured),
                                link.asked.unlimited() ? "unlimited" : format_rate(link.asked.bits_per_second),
                                link.off() ? " OFF BY MORE THAN 10 %" : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace co2::lab
