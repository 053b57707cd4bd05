#include "cli/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "util/svg.h"

namespace remat::cli {
namespace {

constexpr int kWidth = 640, kHeight = 400;
constexpr int kLeft = 64, kRight = 616, kTop = 40, kBottom = 344;  // the plot
constexpr double kLargestX = 100;
constexpr int kMostTicks = 5;

// From the chart's numbers to places in the picture.
struct Scale {
  double largest_y;
  double x(double value) const { return kLeft + value / kLargestX * (kRight - kLeft); }
  double y(double value) const { return kBottom - value / largest_y * (kBottom - kTop); }
};

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return "  <line class=\"" + std::string(kind) + "\" x1=\"" + svg_number(x1) + "\" y1=\"" + svg_number(y1) +
         "\" x2=\"" + svg_number(x2) + "\" y2=\"" + svg_number(y2) + "\"/>\n";
}

std::string text(double x, double y, const char* anchor, const std::string& content, const std::string& more = "") {
  return "  <text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
         escape_xml(content) + "</text>\n";
}

// An axis is at least as long as its points, and ends at a tick.
double axis_end(double largest, double distance) { return distance * std::ceil(largest / distance - 1e-9); }

std::string axes(const Chart& chart, const Scale& scale, double y_distance) {
  std::string svg;
  const double x_distance = tick_distance(kLargestX, kMostTicks);
  for (int i = 0; i * x_distance <= kLargestX; ++i) {
    const double x = scale.x(i * x_distance);
    svg += line(x, kBottom, x, kBottom + 5, "axis");
    svg += text(x, kBottom + 20, "middle", svg_number(i * x_distance));
  }
  const auto y_ticks = static_cast<int>(std::llround(scale.largest_y / y_distance));
  for (int i = 0; i <= y_ticks; ++i) {
    const double y = scale.y(i * y_distance);
    if (i > 0) svg += line(kLeft, y, kRight, y, "grid");
    svg += line(kLeft - 5, y, kLeft, y, "axis");
    svg += text(kLeft - 9, y + 4, "end", svg_number(i * y_distance));
  }
  svg += line(kLeft, kBottom, kRight, kBottom, "axis");
  svg += line(kLeft, kTop, kLeft, kBottom, "axis");
  svg += text((kLeft + kRight) / 2.0, kHeight - 12, "middle", chart.x_label);
  constexpr double middle = (kTop + kBottom) / 2.0;
  svg += text(18, middle, "middle", chart.y_label, " transform=\"rotate(-90 18 " + svg_number(middle) + ")\"");
  return svg;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  double largest = 0;
  for (const auto& point : chart.points) largest = std::max(largest, point.y);
  if (largest < 0.05) largest = 1;  // ticks have two decimals
  const double distance = tick_distance(largest, kMostTicks);
  const Scale scale{axis_end(largest, distance)};

  const auto size = std::to_string(kWidth) + " " + std::to_string(kHeight);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + "\" width=\"" +
                    std::to_string(kWidth) + "\" height=\"" + std::to_string(kHeight) +
                    "\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n  <title>" +
                    escape_xml(chart.title) +
                    "</title>\n"
                    "  <style>.axis { stroke: #444 } .grid { stroke: #ddd } text { fill: #222 } "
                    ".curve { fill: none; stroke: #1f5fa8; stroke-width: 2 } .point { fill: #1f5fa8 }</style>\n"
                    "  <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  svg += text(kLeft, 22, "start", chart.title, " font-weight=\"bold\"");
  svg += axes(chart, scale, distance);
  std::string places;
  for (const auto& point : chart.points) {
    if (!places.empty()) places += ' ';
    places += svg_number(scale.x(point.x)) + "," + svg_number(scale.y(point.y));
  }
  svg += "  <polyline class=\"curve\" points=\"" + places + "\"/>\n";
  for (const auto& point : chart.points) {
    svg += "  <circle class=\"point\" cx=\"" + svg_number(scale.x(point.x)) + "\" cy=\"" +
           svg_number(scale.y(point.y)) + "\" r=\"4\"><title>" + escape_xml(point.tooltip) + "</title></circle>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace remat::cli
