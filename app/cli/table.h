// cli/table.h -- rows and columns for people: the first column flush left, the others flush right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::cli {

class Table {
 public:
  /// Rows may have different numbers of cells, which are made printable(): names in them come from files.
  void add(std::vector<std::string> cells);

  /// All rows, each ending in a newline, without trailing spaces.
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "1.32 s", "45.1 ms": three significant digits.
std::string format_seconds(double seconds);
/// "4:05", "1:02:03": time left.
std::string format_clock(double seconds);
/// "12,345".
std::string format_count(int64_t count);
/// `value` with `decimals` digits after the point.
std::string format_number(double value, int decimals);

}  // namespace remat::cli
