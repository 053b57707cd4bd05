#include "pretrained/json_object.h"

#include "util/json_object.h"

namespace remat::pretrained {
namespace {

struct Problem {
  std::string text;
};

class ObjectReader final : public JsonReader {
 public:
  using JsonReader::JsonReader;

  void refuse_syntax(size_t /*byte*/, const nlohmann::json::exception& /*error*/) override { refuse_as_no_object(); }
  void refuse_zero_byte(size_t /*byte*/) override { refuse_as_no_object(); }
  void refuse_name_twice(const std::string& name) override {
    throw Problem{"has the name '" + name + "' twice in one object"};
  }
  void refuse_nesting() override { throw Problem{"is nested more than " + std::to_string(most_nested()) + " deep"}; }
  void refuse_count() override {}  // any
  void refuse_root(const nlohmann::json& /*root*/) override { refuse_as_no_object(); }

 private:
  [[noreturn]] static void refuse_as_no_object() { throw Problem{"is no JSON object"}; }
};

}  // namespace

std::string parse_object(const std::string& text, size_t most_depth, nlohmann::json& json) {
  try {
    json = ObjectReader(most_depth).read(text);
    return "";
  } catch (const Problem& problem) {
    return problem.text;
  }
}

}  // namespace remat::pretrained
