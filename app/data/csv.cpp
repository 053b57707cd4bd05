#include "data/csv.h"

#include <utility>

#include "data/file_error.h"

namespace remat::data {

CsvReader::CsvReader(std::string path, std::string_view contents) : path_(std::move(path)), contents_(contents) {}

bool CsvReader::next(std::vector<std::string>& fields) {
  fields.clear();
  while (skip_line_end()) continue;  // empty lines
  if (at_end()) return false;
  line_ = next_line_;
  for (;;) {
    fields.push_back(contents_[at_] == '"' ? quoted_field() : plain_field());
    if (at_end() || skip_line_end()) return true;
    if (contents_[at_] != ',') {
      refuse_line(path_, next_line_, "text follows the quote that ends a field; write a quote within a field twice");
    }
    ++at_;
    if (at_end()) {  // a comma is the last byte: an empty field follows
      fields.emplace_back();
      return true;
    }
  }
}

std::string CsvReader::quoted_field() {
  const int64_t begin = next_line_;
  std::string field;
  for (++at_; !at_end(); ++at_) {
    const char c = contents_[at_];
    if (c == '\n') ++next_line_;
    if (c == '"') {
      const bool doubled = at_ + 1 < contents_.size() && contents_[at_ + 1] == '"';
      if (!doubled) {
        ++at_;
        return field;
      }
      ++at_;
    }
    field += c;
  }
  refuse_line(path_, begin, "the quote that begins here does not end; write a quote within a field twice");
}

std::string CsvReader::plain_field() {
  const size_t begin = at_;
  for (; !at_end(); ++at_) {
    const char c = contents_[at_];
    if (c == ',' || c == '\n') break;
    if (c == '\r') {
      if (contents_.substr(at_).starts_with("\r\n")) break;
      refuse_line(path_, next_line_, "a carriage return without a line feed; end lines in one of LF and CRLF");
    }
    if (c == '"') {
      refuse_line(path_, next_line_,
                  "a quote within a field that does not begin with one; put the field in quotes, and write this one "
                  "twice");
    }
  }
  return std::string(contents_.substr(begin, at_ - begin));
}

bool CsvReader::skip_line_end() {
  const auto rest = contents_.substr(at_);
  const size_t length = rest.starts_with("\r\n") ? 2 : rest.starts_with('\n') ? 1 : 0;
  at_ += length;
  if (length > 0) ++next_line_;
  return length > 0;
}

}  // namespace remat::data
