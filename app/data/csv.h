// data/csv.h -- comma-separated values as RFC 4180 describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

/// Reads one record after another. Lines end in LF or CRLF; empty lines are skipped.
class CsvReader {
 public:
  /// `path` is for messages. `contents` must outlive the reader.
  CsvReader(std::string path, std::string_view contents);

  /// The next record, without the quotes; false at the end. Throws Error, which names the line, for a quote that does
  /// not end, one within a field that does not begin with one, and for a carriage return without a line feed.
  bool next(std::vector<std::string>& fields);

  /// Where the last record begins, from 1.
  int64_t line() const { return line_; }

 private:
  std::string quoted_field();
  std::string plain_field();
  /// The end of a line at the place that is read next, if there is one; moves behind it.
  bool skip_line_end();
  bool at_end() const { return at_ == contents_.size(); }

  std::string path_;
  std::string_view contents_;
  size_t at_ = 0;
  int64_t line_ = 0;
  int64_t next_line_ = 1;  ///< that of `at_`
};

}  // namespace remat::data
