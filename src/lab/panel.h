#pragma once

#include <string>
#include <vector>

namespace co2::lab {

struct Point {
  double x = 0;
  double y = 0;
};

/// One line of a panel. It is labelled where it ends, in its own colour, so that nobody has to look up a legend.
struct Series {
  std::string label;
  std::string colour;
  std::string dashes{};  ///< of an SVG stroke; empty: none
  bool markers = false;
  double width = 2;
  std::vector<Point> points{};
};

struct Axis {
  std::string title;
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  /// Where there are marks, and what they say; none: round numbers.
  std::vector<std::pair<double, std::string>> ticks{};
};

/// A pair of axes with lines, at a place in a picture, as SVG.
struct Panel {
  std::string title;
  Axis x;
  Axis y;
  std::vector<Series> series;
  double left = 0;  ///< of the plot itself; titles, numbers and labels are around it
  double top = 0;
  double width = 400;
  double height = 300;
};

/// `number` tells panels of one picture apart.
std::string draw(const Panel& panel, int number);

/// Text inside SVG.
std::string escape(const std::string& text);

/// Marks at 1, 2 or 5 times a power of ten, about `count` of them, or for a logarithmic axis at each of these.
std::vector<std::pair<double, std::string>> round_ticks(const Axis& axis, int count);

}  // namespace co2::lab
