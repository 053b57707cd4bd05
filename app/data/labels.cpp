#include "data/labels.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "data/file_error.h"

namespace remat::data {
namespace {

std::optional<int64_t> integer(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

/// By value where all are integers, else by their bytes.
std::vector<std::string> in_order(const std::set<std::string>& labels) {
  std::vector<std::string> names(labels.begin(), labels.end());
  if (std::ranges::all_of(names, [](const auto& name) { return integer(name).has_value(); })) {
    std::ranges::stable_sort(names, {}, integer);  // "1" and "01" stay in order
  }
  return names;
}

}  // namespace

Labels find_labels(const std::string& path, const std::vector<LabelledText>& examples,
                   const std::vector<std::string>& known) {
  std::set<std::string> distinct;
  for (const auto& example : examples) distinct.insert(example.label);
  const auto all_in = [&](const std::map<std::string, int64_t>& numbers) {
    return std::ranges::all_of(distinct, [&](const auto& label) { return numbers.contains(label); });
  };
  std::map<std::string, int64_t> by_name, by_number;
  for (const auto& name : known) {
    const auto number = static_cast<int64_t>(by_number.size());
    by_name.emplace(name, number);
    by_number.emplace(std::to_string(number), number);
  }
  if (all_in(by_name)) return {.names = known, .numbers = std::move(by_name)};
  if (all_in(by_number)) return {.names = known, .numbers = std::move(by_number)};
  if (distinct.size() == 1) {
    refuse_file(path, "has the label '" + *distinct.begin() + "' alone; give examples of two classes or more");
  }
  Labels labels{.names = in_order(distinct), .numbers = {}};
  for (const auto& name : labels.names) labels.numbers.emplace(name, static_cast<int64_t>(labels.numbers.size()));
  return labels;
}

std::vector<int64_t> classes_of(const std::string& path, const std::vector<LabelledText>& examples,
                                const Labels& labels) {
  std::vector<int64_t> classes;
  classes.reserve(examples.size());
  for (const auto& example : examples) {
    const auto found = labels.numbers.find(example.label);
    if (found == labels.numbers.end()) {
      std::vector<std::string> names;
      for (const auto& [name, number] : labels.numbers) names.push_back(name);
      refuse_line(path, example.line,
                  "the label '" + example.label + "' is none of the training's, " + list_names(names) +
                      "; mend it, or add it to --data");
    }
    classes.push_back(found->second);
  }
  return classes;
}

}  // namespace remat::data
