#pragma once

#include <string>
#include <vector>

namespace co2::lab {

struct Point {
  double x = 0;
  double y = 0;
};

/// How far values spread at some place of a line.
struct Band {
  double x = 0;
  double low = 0;
  double high = 0;
};

/// One line of a panel. It is labelled where it ends, in its own colour, so that nobody has to look up a legend.
struct Series {
  std::string label;
  std::string colour;
  std::string dashes{};  ///< of an SVG stroke; empty: none
  bool markers = false;
  double width = 2;
  std::vector<Point> points{};
  std::vector<Band> band{};  ///< shown behind the line
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

/// Fits the axes to the lines: the steep beginning is cut off, and a line that takes many times as long as another is
/// shown on a logarithmic axis.
void fit(Panel& panel);

/// A whole document: panels side by side, of one size, with room for the labels of so many lines. `alt` is for who
/// can't see it.
std::string picture(std::vector<Panel> panels, std::size_t lines, const std::string& alt);

/// Text inside SVG.
std::string escape(const std::string& text);

/// Marks at 1, 2 or 5 times a power of ten, about `count` of them, or for a logarithmic axis at each of these.
std::vector<std::pair<double, std::string>> round_ticks(const Axis& axis, int count);

}  // namespace co2::lab
