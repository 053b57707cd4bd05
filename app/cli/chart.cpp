#include "cli/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <remat/support/svg.h>

namespace remat::cli {

using support::escape_xml;
using support::svg_number;
using support::tick_distance;

namespace {

constexpr int kWidth = 640, kHeight = 400;
constexpr int kLeft = 64, kRight = 616, kTop = 40, kBottom = 344;  // the plot
constexpr int kLegendWidth = 250, kLegendLine = 16;
constexpr int kMostTicks = 5;

// Those of Okabe and Ito after the first.
constexpr const char* kColours[] = {"#1f5fa8", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                    "#56b4e9", "#000000", "#8c6d31", "#7b4ea3", "#6b6b6b"};

// From the chart's numbers to places in the picture.
struct Scale {
  double largest_x, largest_y, smallest_y;
  double x(double value) const { return kLeft + value / largest_x * (kRight - kLeft); }
  double y(double value) const { return kBottom - (value - smallest_y) / (largest_y - smallest_y) * (kBottom - kTop); }
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

std::string axes(const Chart& chart, const Scale& scale, double x_distance, double y_distance) {
  std::string svg;
  for (int i = 0; i * x_distance <= scale.largest_x * (1 + 1e-9); ++i) {
    const double x = scale.x(i * x_distance);
    svg += line(x, kBottom, x, kBottom + 5, "axis");
    svg += text(x, kBottom + 20, "middle", svg_number(i * x_distance));
  }
  const auto lowest = static_cast<int>(std::llround(scale.smallest_y / y_distance));
  const auto highest = static_cast<int>(std::llround(scale.largest_y / y_distance));
  for (int i = lowest; i <= highest; ++i) {
    const double y = scale.y(i * y_distance);
    if (i > lowest) svg += line(kLeft, y, kRight, y, "grid");
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

std::string draw(const ChartLine& chart_line, const Scale& scale) {
  const std::string colour = kColours[chart_line.colour % std::size(kColours)];
  std::string places, points;
  for (const auto& point : chart_line.points) {
    const std::string x = svg_number(scale.x(point.x)), y = svg_number(scale.y(point.y));
    places += (places.empty() ? "" : " ") + x + "," + y;
    if (point.y > scale.largest_y * (1 + 1e-9)) continue;
    points += "  <circle class=\"point\" fill=\"" + colour + "\" cx=\"" + x + "\" cy=\"" + y + "\" r=\"4\"><title>" +
              escape_xml(point.tooltip) + "</title></circle>\n";
  }
  return "  <polyline class=\"curve\" clip-path=\"url(#plot)\" stroke=\"" + colour + "\"" +
         (chart_line.dashed ? " stroke-dasharray=\"6 4\"" : "") + " points=\"" + places + "\"/>\n" + points;
}

std::string legend(const std::vector<ChartLine>& lines) {
  std::string svg;
  double y = kTop + 8;
  for (const auto& each : lines) {
    svg += "  <line stroke-width=\"2\" stroke=\"" + std::string(kColours[each.colour % std::size(kColours)]) + "\"" +
           (each.dashed ? " stroke-dasharray=\"6 4\"" : "") + " x1=\"" + std::to_string(kRight + 16) + "\" y1=\"" +
           svg_number(y) + "\" x2=\"" + std::to_string(kRight + 40) + "\" y2=\"" + svg_number(y) + "\"/>\n";
    svg += text(kRight + 46, y + 4, "start", each.name);
    y += kLegendLine;
  }
  return svg;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  double largest_x = chart.x_end, largest_y = chart.y_end, smallest_y = 0;
  for (const auto& each : chart.lines) {
    for (const auto& point : each.points) {
      if (chart.x_end <= 0) largest_x = std::max(largest_x, point.x);
      if (chart.y_end <= 0) largest_y = std::max(largest_y, point.y);
      smallest_y = std::min(smallest_y, point.y);
    }
  }
  if (largest_x < 0.05) largest_x = 1;  // ticks have two decimals
  if (largest_y < 0.05) largest_y = 1;
  const double x_distance = tick_distance(largest_x, kMostTicks);
  const double y_distance = tick_distance(std::max(largest_y, -smallest_y), kMostTicks);
  const Scale scale{axis_end(largest_x, x_distance), axis_end(largest_y, y_distance),
                    -axis_end(-smallest_y, y_distance)};

  const bool named = chart.lines.size() > 1;
  const auto width = std::to_string(kWidth + (named ? kLegendWidth : 0));
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " + std::to_string(kHeight) +
                    "\" width=\"" + width + "\" height=\"" + std::to_string(kHeight) +
                    "\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n  <title>" +
                    escape_xml(chart.title) +
                    "</title>\n"
                    "  <style>.axis { stroke: #444 } .grid { stroke: #ddd } text { fill: #222 } "
                    ".curve { fill: none; stroke-width: 2 }</style>\n"
                    "  <clipPath id=\"plot\"><rect x=\"" +
                    std::to_string(kLeft) + "\" y=\"" + std::to_string(kTop) + "\" width=\"" +
                    std::to_string(kRight - kLeft) + "\" height=\"" + std::to_string(kBottom - kTop + 2) +
                    "\"/></clipPath>\n"
                    "  <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  svg += text(kLeft, 22, "start", chart.title, " font-weight=\"bold\"");
  svg += axes(chart, scale, x_distance, y_distance);
  for (const auto& each : chart.lines) svg += draw(each, scale);
  if (named) svg += legend(chart.lines);
  return svg + "</svg>\n";
}

}  // namespace remat::cli
