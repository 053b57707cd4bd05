// cli/chart.h -- a chart of lines as SVG.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

struct ChartPoint {
  double x = 0, y = 0;
  std::string tooltip;
};

struct ChartLine {
  std::string name = {};           ///< in the legend, which a chart of one line has not
  std::vector<ChartPoint> points;  ///< in the order in which the line runs; no x negative
  size_t colour = 0;               ///< lines of one number have one colour
  bool dashed = false;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartLine> lines;
  double x_end = 100;  ///< of the axis; 0: as far as the points go
  double y_end = 0;    ///< lines to what lies above run out of the picture; 0: as high as the points go
};

/// A whole SVG document. Text of any kind may be in the chart.
std::string to_svg(const Chart& chart);

}  // namespace remat::cli
