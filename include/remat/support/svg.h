// remat/support/svg.h -- what pictures in SVG have in common.
#pragma once

#include <string>

namespace remat::support {

/// For text in XML and HTML, and for attributes in double quotes. Control characters, for which XML has no place,
/// become question marks.
std::string escape_xml(const std::string& text);

/// "3.25", "3": at most two decimals.
std::string svg_number(double value);

/// A round distance between ticks on an axis from 0 to `largest`, at most `most` of them after 0: 1, 2 or 5 times a
/// power of ten.
double tick_distance(double largest, int most);

}  // namespace remat::support
