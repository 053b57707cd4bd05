#include "data/labelled_text.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "data/csv.h"
#include "data/file_error.h"
#include "data/jsonl.h"
#include "tokenizers/unicode.h"

namespace remat::data {
namespace {

void check_utf8(const std::string& path, std::string_view contents) {
  for (int64_t line = 1; !contents.empty(); ++line) {
    const size_t end = std::min(contents.find('\n'), contents.size() - 1) + 1;
    if (!tokenizers::is_well_formed(contents.substr(0, end))) {
      refuse_line(path, line, "the line is not UTF-8; convert the file (iconv -t UTF-8)");
    }
    contents.remove_prefix(end);
  }
}

size_t find_column(const std::string& path, int64_t line, const std::vector<std::string>& header,
                   const std::string& name, const std::string& option) {
  const auto count = std::ranges::count(header, name);
  if (count == 0) {
    refuse_line(path, line,
                "there is no column '" + name + "', but " + list_names(header) + "; name one with " + option);
  }
  if (count > 1) refuse_line(path, line, "there are " + std::to_string(count) + " columns '" + name + "'; rename one");
  return static_cast<size_t>(std::ranges::find(header, name) - header.begin());
}

std::vector<LabelledText> read_csv(const std::string& path, std::string_view contents, const Columns& columns) {
  CsvReader reader(path, contents);
  std::vector<std::string> header, fields;
  if (!reader.next(header)) return {};
  const size_t text = find_column(path, reader.line(), header, columns.text, "--text-column");
  const size_t label = find_column(path, reader.line(), header, columns.label, "--label-column");
  std::vector<LabelledText> examples;
  while (reader.next(fields)) {
    if (fields.size() != header.size()) {
      refuse_line(path, reader.line(),
                  "there are " + std::to_string(fields.size()) + " fields, and " + std::to_string(header.size()) +
                      " columns; put a field that has commas in quotes");
    }
    examples.push_back({.text = fields[text], .label = fields[label], .line = reader.line()});
  }
  return examples;
}

const nlohmann::json& find_member(const JsonlReader& reader, const std::string& path, const nlohmann::json& object,
                                  const std::string& name, const std::string& option) {
  const auto found = object.find(name);
  if (found != object.end()) return *found;
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  refuse_line(path, reader.line(),
              "the object has no '" + name + "'" + (names.empty() ? "" : ", but " + list_names(names)) +
                  "; name one with " + option);
}

std::vector<LabelledText> read_jsonl(const std::string& path, std::string_view contents, const Columns& columns) {
  JsonlReader reader(path, contents, R"(write {"text": "...", "label": "..."})");
  nlohmann::json object;
  std::vector<LabelledText> examples;
  while (reader.next(object)) {
    const auto& text = find_member(reader, path, object, columns.text, "--text-column");
    const auto& label = find_member(reader, path, object, columns.label, "--label-column");
    if (!text.is_string()) {
      refuse_line(path, reader.line(), "'" + columns.text + "' is " + text.type_name() + "; write a string");
    }
    if (!label.is_string() && !label.is_number_integer()) {
      refuse_line(path, reader.line(),
                  "'" + columns.label + "' is " + (label.is_primitive() ? label.dump() : label.type_name()) +
                      "; write a string or an integer");
    }
    examples.push_back({.text = text.get<std::string>(),
                        .label = label.is_string() ? label.get<std::string>() : label.dump(),
                        .line = reader.line()});
  }
  return examples;
}

}  // namespace

std::vector<LabelledText> read_labelled_texts(const std::string& path, std::string_view contents,
                                              const Columns& columns) {
  const bool csv = path.ends_with(".csv");
  if (!csv && !path.ends_with(".jsonl")) {
    refuse_file(path, "is neither a .csv nor a .jsonl file; give labelled texts in one of these forms");
  }
  if (contents.empty()) refuse_file(path, "is empty; give labelled texts");
  check_utf8(path, contents);
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (contents.starts_with(kByteOrderMark)) contents.remove_prefix(kByteOrderMark.size());
  auto examples = csv ? read_csv(path, contents, columns) : read_jsonl(path, contents, columns);
  if (examples.empty()) refuse_file(path, "has no examples; give labelled texts");
  const auto unlabelled = std::ranges::find(examples, "", &LabelledText::label);
  if (unlabelled != examples.end())
    refuse_line(path, unlabelled->line, "the label is empty; give one, or leave out the text");
  return examples;
}

}  // namespace remat::data
