#include <remat/run.h>

#include <utility>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "plan/json.h"

namespace remat {
namespace {

using nlohmann::json;

constexpr JsonPlace kPlace{"run"};
constexpr const char* kRunFormat = "remat-run";
constexpr const char* kFields[] = {"format", "version", "name", "graph", "plan", "report", "layers"};

/// A document in the document, by its own reader.
template <class Part>
std::optional<Part> read_part(const JsonRecord& run, const char* field, Part (*read)(std::string_view)) {
  if (run[field].is_null()) return std::nullopt;
  return read(run[field].dump());
}

}  // namespace

std::string Run::problem() const {
  if (std::string wrong = graph.problem(); !wrong.empty()) return wrong;
  if (plan) {
    if (std::string wrong = plan->problem(graph); !wrong.empty()) return wrong;
  }
  if (layers.empty() || layers.size() == graph.operators.size()) return {};
  return "there are " + std::to_string(layers.size()) + " layers, one for each of the graph's " +
         std::to_string(graph.operators.size()) + " operators are needed, or none";
}

std::string to_json(const Run& run) {
  if (const std::string wrong = run.problem(); !wrong.empty())
    throw Error("[run] " + wrong + "; only a sound run can be written");
  std::string out = std::string("{\n \"format\": \"") + kRunFormat + "\",\n \"version\": ";
  append_json(out, int64_t{Run::kVersion});
  out += ",\n \"name\": ";
  append_json(out, run.name, kPlace, "name");
  out += ",\n \"layers\": [";
  const char* separator = "\n  ";
  for (const std::string& layer : run.layers) {
    out += std::exchange(separator, ",\n  ");
    append_json(out, layer, kPlace, "layers");
  }
  out += run.layers.empty() ? "]" : "\n ]";
  out += ",\n \"report\": " + (run.report ? to_json(*run.report) : "null");
  out += ",\n \"plan\": " + (run.plan ? to_json(*run.plan) : "null");
  out += ",\n \"graph\": " + to_json(run.graph);
  return out + "}\n";
}

Run run_from_json(std::string_view text) {
  const json document = parse_document(text, kPlace.document, kRunFormat, {Run::kVersion, Run::kVersion});
  const JsonRecord record(document, kPlace, kFields);
  std::vector<std::string> layers;
  for (const json& layer : record.list("layers")) {
    if (!layer.is_string()) record.refuse("layers", "has " + layer.dump() + ", not a string");
    layers.push_back(layer.get<std::string>());
  }
  Run run{.name = record.text("name"),
          .graph = graph_from_json(record["graph"].dump()),
          .plan = read_part(record, "plan", plan_from_json),
          .report = read_part(record, "report", report_from_json),
          .layers = std::move(layers)};
  if (const std::string wrong = run.problem(); !wrong.empty())
    throw Error("[run] " + wrong + "; the text was changed, have it written again");
  return run;
}

}  // namespace remat
