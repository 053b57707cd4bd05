#include "cli/table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "cli/printable.h"

#include <remat/support/number_text.h>
#include <remat/support/table_text.h>

namespace remat::cli {

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const { return support::table_text(rows_); }

std::string format_number(double value, int decimals) { return support::fixed_text(value, decimals); }

std::string format_seconds(double seconds) {
  const bool small = seconds < 0.9995;
  const double value = small ? seconds * 1e3 : seconds;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return format_number(value, decimals) + (small ? " ms" : " s");
}

std::string format_clock(double seconds) {
  const auto all = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 3.6e8)));
  char text[32];
  if (all < 3600) {
    std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(all / 60), static_cast<int>(all % 60));
  } else {
    std::snprintf(text, sizeof text, "%d:%02d:%02d", static_cast<int>(all / 3600), static_cast<int>(all / 60 % 60),
                  static_cast<int>(all % 60));
  }
  return text;
}

std::string format_count(int64_t count) {
  auto text = std::to_string(count);
  const int64_t first = count < 0 ? 1 : 0;
  for (auto place = static_cast<int64_t>(text.size()) - 3; place > first; place -= 3) {
    text.insert(static_cast<size_t>(place), 1, ',');
  }
  return text;
}

}  // namespace remat::cli
