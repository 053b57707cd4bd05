#include "data/jsonl.h"

#include <utility>

#include "data/file_error.h"
#include "util/json_object.h"

namespace remat::data {
namespace {

constexpr size_t kMostNested = 64;

class LineReader final : public JsonReader {
 public:
  LineReader(const std::string& path, int64_t line) : JsonReader(kMostNested), path_(path), line_(line) {}

  void refuse_syntax(size_t byte, const nlohmann::json::exception& /*error*/) override {
    refuse("is no JSON at byte " + std::to_string(byte));
  }
  void refuse_zero_byte(size_t byte) override { refuse("has a zero byte at byte " + std::to_string(byte)); }
  void refuse_name_twice(const std::string& name) override { refuse("has the name '" + name + "' twice"); }
  void refuse_nesting() override { refuse("is nested more than " + std::to_string(kMostNested) + " deep"); }
  void refuse_count() override {}  // any
  void refuse_root(const nlohmann::json& root) override {
    refuse("is " + std::string(root.type_name()) + ", not an object");
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    refuse_line(path_, line_, "the line " + problem + R"(; write {"text": "...", "label": "..."})");
  }

  const std::string& path_;
  const int64_t line_;
};

}  // namespace

JsonlReader::JsonlReader(std::string path, std::string_view contents) : path_(std::move(path)), rest_(contents) {}

bool JsonlReader::next(nlohmann::json& object) {
  while (!rest_.empty()) {
    ++line_;
    const size_t end = rest_.find('\n');
    const auto line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    object = LineReader(path_, line_).read(line);
    return true;
  }
  return false;
}

}  // namespace remat::data
