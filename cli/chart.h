// cli/chart.h -- a line chart as SVG.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

struct ChartPoint {
  double x = 0, y = 0;
  std::string tooltip;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartPoint> points;  ///< in the order in which the line runs; x from 0 to 100, y not negative
};

/// A whole SVG document. Text of any kind may be in the chart.
std::string to_svg(const Chart& chart);

/// A round distance between ticks on an axis from 0 to `largest`, at most `most` of them after 0: 1, 2 or 5 times a
/// power of ten.
double tick_distance(double largest, int most);

}  // namespace remat::cli
