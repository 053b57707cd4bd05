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

}  // namespace remat::cli
