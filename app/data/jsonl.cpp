#include "data/jsonl.h"

#include <utility>

#include "common/json_object.h"
#include "data/file_error.h"

namespace remat::data {
namespace {

constexpr size_t kMostNested = 64;

}  // namespace

JsonlReader::JsonlReader(std::string path, std::string_view contents, std::string remedy)
    : path_(std::move(path)), remedy_(std::move(remedy)), rest_(contents) {}

bool JsonlReader::next(nlohmann::json& object) {
  while (!rest_.empty()) {
    ++line_;
    const size_t end = rest_.find('\n');
    const auto line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      object = common::read_json_object(line, kMostNested);
    } catch (const common::JsonProblem& problem) {
      refuse_line(path_, line_, "the line " + problem.text + "; " + remedy_);
    }
    return true;
  }
  return false;
}

}  // namespace remat::data
