#include "lab/panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/human.h"

namespace co2::lab {

namespace {

constexpr double kLabelHeight = 16;
constexpr const char* kInk = "#333333";

/// Maps a value on an axis to a place between two others.
double place(const Axis& axis, double value, double from, double to) {
  double share = (value - axis.low) / (axis.high - axis.low);
  if (axis.logarithmic) share = std::log(value / axis.low) / std::log(axis.high / axis.low);
  return from + share * (to - from);
}

std::string text(double x, double y, const std::string& anchor, const std::string& words,
                 const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor,
                     more.empty() ? fmt::format("fill=\"{}\"", kInk) : more, escape(words));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& colour, double width) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", x1, y1, x2,
      y2, colour, width);
}

std::string number(double value) {
  if (std::abs(value) < 1e3) return fmt::format("{:g}", value);
  return thousands(value);
}

/// Along its upper side, and back along the lower one.
std::string band(const Series& series, const auto& x_of, const auto& y_of) {
  if (series.band.empty()) return "";
  std::string points;
  for (const Band& each : series.band) points += fmt::format("{:.1f},{:.1f} ", x_of(each.x), y_of(each.high));
  for (auto each = series.band.rbegin(); each != series.band.rend(); ++each) {
    points += fmt::format("{:.1f},{:.1f} ", x_of(each->x), y_of(each->low));
  }
  return fmt::format("<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.13\"/>\n", points, series.colour);
}

struct Label {
  const Series* series;
  double x = 0;  // where the line ends
  double y = 0;
  double height = 0;  // where the label goes
};

/// Moves labels apart, as little as it takes, within the panel.
void spread(std::vector<Label>& labels, double top, double bottom) {
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.y < b.y; });
  double lowest = top;
  for (Label& label : labels) {
    label.height = std::max(label.y, lowest);
    lowest = label.height + kLabelHeight;
  }
  double limit = bottom;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    label->height = std::min(label->height, limit);
    limit = label->height - kLabelHeight;
  }
}

}  // namespace

std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::vector<std::pair<double, std::string>> round_ticks(const Axis& axis, int count) {
  std::vector<std::pair<double, std::string>> ticks;
  if (axis.logarithmic) {
    for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high; power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double value = factor * power;
        if (value >= axis.low && value <= axis.high) ticks.emplace_back(value, number(value));
      }
    }
    return ticks;
  }
  const double rough = (axis.high - axis.low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
  for (double i = std::ceil(axis.low / step); i * step <= axis.high + step * 1e-9; ++i) {
    ticks.emplace_back(i * step, number(i * step));
  }
  return ticks;
}

std::string draw(const Panel& panel, int number) {
  const double right = panel.left + panel.width;
  const double bottom = panel.top + panel.height;
  const auto x_of = [&](double value) { return place(panel.x, value, panel.left, right); };
  const auto y_of = [&](double value) { return place(panel.y, value, bottom, panel.top); };
  std::string svg = text(panel.left, panel.top - 18, "start", panel.title,
                         fmt::format("fill=\"{}\" font-size=\"16\" font-weight=\"bold\"", kInk));
  for (const auto& [value, words] : panel.y.ticks.empty() ? round_ticks(panel.y, 8) : panel.y.ticks) {
    svg += line(panel.left, y_of(value), right, y_of(value), "#e3e3e3", 1);
    svg += text(panel.left - 8, y_of(value) + 4, "end", words);
  }
  for (const auto& [value, words] : panel.x.ticks.empty() ? round_ticks(panel.x, 6) : panel.x.ticks) {
    svg += line(x_of(value), bottom, x_of(value), bottom + 5, kInk, 1);
    svg += text(x_of(value), bottom + 20, "middle", words);
  }
  svg += line(panel.left, bottom, right, bottom, kInk, 1);
  svg += text((panel.left + right) / 2, bottom + 42, "middle", panel.x.title);
  const double middle = (panel.top + bottom) / 2;
  svg += text(panel.left - 62, middle, "middle", panel.y.title,
              fmt::format("fill=\"{}\" transform=\"rotate(-90 {:.1f} {:.1f})\"", kInk, panel.left - 62, middle));

  svg += fmt::format(
      "<clipPath id=\"plot{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>"
      "</clipPath>\n<g clip-path=\"url(#plot{})\">\n",
      number, panel.left - 5, panel.top - 5, panel.width + 10, panel.height + 10, number);
  std::vector<Label> labels;
  for (const Series& series : panel.series) {
    if (series.points.empty()) continue;
    svg += band(series, x_of, y_of);
    std::string points;
    for (const Point& point : series.points) points += fmt::format("{:.1f},{:.1f} ", x_of(point.x), y_of(point.y));
    svg += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{}/>\n",
        points, series.colour, series.width,
        series.dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", series.dashes));
    for (const Point& point : series.points) {
      if (!series.markers) break;
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x_of(point.x), y_of(point.y),
                         series.width + 1.5, series.colour);
    }
    const Point& last = series.points.back();
    const double end_y = std::clamp(y_of(last.y), panel.top, bottom);
    labels.push_back({&series, x_of(last.x), end_y, end_y});
  }
  svg += "</g>\n";
  spread(labels, panel.top, bottom);
  for (const Label& label : labels) {
    svg += fmt::format(
        "<path d=\"M{:.1f} {:.1f} L{:.1f} {:.1f} L{:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"1\" stroke-opacity=\"0.45\"/>\n",
        label.x + 5, label.y, right + 8, label.height, right + 14, label.height, label.series->colour);
    svg += text(
        right + 18, label.height + 4, "start", label.series->label,
        fmt::format("fill=\"{}\"{}", label.series->colour, label.series->width > 2 ? " font-weight=\"bold\"" : ""));
  }
  return svg;
}

void fit(Panel& panel) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  double shortest = low;
  double longest = 0;
  double earliest = low;
  for (const Series& series : panel.series) {
    if (series.points.empty()) continue;
    const auto past_beginning = series.points.begin() + static_cast<std::ptrdiff_t>(series.points.size() / 12);
    for (auto point = past_beginning; point != series.points.end(); ++point) {
      low = std::min(low, point->y);
      high = std::max(high, point->y);
    }
    shortest = std::min(shortest, series.points.back().x);
    longest = std::max(longest, series.points.back().x);
    earliest = std::min(earliest, past_beginning->x);
  }
  if (!(longest > 0)) return;
  const double margin = std::max(0.05 * (high - low), 1e-3);
  panel.y.low = low - 2 * margin;  // room for labels
  panel.y.high = high + margin;
  panel.x.logarithmic = longest > 4 * shortest;
  panel.x.low = panel.x.logarithmic ? std::max(earliest / 2, longest / 1000) : 0;
  panel.x.high = longest;
  for (Series& series : panel.series) {
    std::erase_if(series.points, [&](const Point& p) { return p.x < panel.x.low; });
    std::erase_if(series.band, [&](const Band& b) { return b.x < panel.x.low; });
  }
}

std::string picture(std::vector<Panel> panels, std::size_t lines, const std::string& alt) {
  constexpr double kNumberColumn = 80;  // to the left of a panel
  double label_column = 190;            // to the right
  for (const Panel& panel : panels) {
    for (const Series& series : panel.series) {
      constexpr double kLetter = 8;  // about as wide as a bold one is
      label_column = std::max(label_column, 30 + kLetter * static_cast<double>(series.label.size()));
    }
  }
  double left = kNumberColumn + 10;
  for (Panel& panel : panels) {
    panel.left = left;
    panel.top = 60;
    panel.width = 380;
    panel.height = std::max(330.0, 18.0 * static_cast<double>(lines));
    left += panel.width + label_column + kNumberColumn;
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"13\" "
      "role=\"img\" aria-label=\"{2}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      left - kNumberColumn, panels.front().top + panels.front().height + 65, escape(alt));
  for (std::size_t i = 0; i < panels.size(); ++i) svg += draw(panels[i], static_cast<int>(i) + 1);
  return svg + "</svg>\n";
}

}  // namespace co2::lab
