// src/report/columns.h -- a timeline in as many columns as a picture has room for.
#pragma once

#include <algorithm>
#include <vector>

#include <remat/timeline.h>

namespace remat {

/// Cuts the time until `end_seconds` into `count` equal columns. Each has the moment in it in which the most is alive,
/// so that no peak is lost; null after the end of the step.
inline std::vector<const TimelineMoment*> columns_of(const Timeline& timeline, double end_seconds, size_t count) {
  std::vector<const TimelineMoment*> columns(count, nullptr);
  const auto column_at = [&](double seconds) {
    const double place = end_seconds > 0 ? seconds / end_seconds * static_cast<double>(count) : 0;
    return std::min(count - 1, static_cast<size_t>(std::max(0.0, place)));
  };
  for (size_t m = 0; m < timeline.moments.size(); ++m) {
    const TimelineMoment& moment = timeline.moments[m];
    const bool last = m + 1 == timeline.moments.size();
    const double end = last ? timeline.end_seconds : timeline.moments[m + 1].begin_seconds;
    for (size_t c = column_at(moment.begin_seconds); c <= column_at(end); ++c) {
      if (columns[c] == nullptr || moment.parts.total() > columns[c]->parts.total()) columns[c] = &moment;
    }
  }
  return columns;
}

}  // namespace remat
