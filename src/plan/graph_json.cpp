#include <remat/graph.h>

#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "plan/json.h"

namespace remat {
namespace {

using nlohmann::json;

constexpr const char* kGraphDocument = "graph";
constexpr const char* kGraphFormat = "remat-graph";

// The last may be left out.
constexpr const char* kGraphFields[] = {"format",         "version",      "baseline_bytes", "parameter_bytes",
                                        "gradient_bytes", "step_seconds", "values",         "operators",
                                        "events",         "tier"};
constexpr const char* kTierFields[] = {"bytes", "costs", "copy_seconds"};
constexpr const char* kValueFields[] = {"bytes", "producer", "packed_bytes", "droppable", "dropped"};
constexpr const char* kOperatorFields[] = {"name",   "seconds",     "replay_seconds", "scratch_bytes",
                                           "inputs", "overwritten", "results"};
// The last may be left out.
constexpr const char* kEventFields[] = {"kind", "index", "rise", "delta", "reused"};

// By GraphEvent::Kind.
constexpr const char* kKindNames[] = {"operator", "idle", "use", "free", "other"};

GraphValue read_value(const JsonRecord& record) {
  return {.bytes = record.bytes("bytes"),
          .producer = record.index("producer"),
          .packed_bytes = record.bytes("packed_bytes"),
          .droppable = record.flag("droppable"),
          .dropped = record.flag("dropped")};
}

Tier read_tier(const JsonRecord& graph) {
  const JsonRecord record(graph["tier"], {kGraphDocument, "tier"}, kTierFields);
  return {.costs = record.form_costs("costs"),
          .copy_seconds = record.seconds("copy_seconds"),
          .bytes = record.bytes("bytes")};
}

GraphOperator read_operator(const JsonRecord& record) {
  return {.name = record.text("name"),
          .seconds = record.seconds("seconds"),
          .replay_seconds = record.seconds("replay_seconds"),
          .scratch_bytes = record.bytes("scratch_bytes"),
          .inputs = record.indexes("inputs"),
          .overwritten = record.indexes("overwritten"),
          .results = record.indexes("results")};
}

GraphEvent::Kind read_kind(const JsonRecord& record) {
  const std::string& name = record.text("kind");
  for (size_t kind = 0; kind < std::size(kKindNames); ++kind) {
    if (name == kKindNames[kind]) return static_cast<GraphEvent::Kind>(kind);
  }
  record.refuse("kind", "is none of \"operator\", \"idle\", \"use\", \"free\", \"other\"");
}

GraphEvent read_event(const JsonRecord& record) {
  return {.kind = read_kind(record),
          .index = record.index("index"),
          .rise = record.bytes("rise"),
          .delta = record.integer("delta", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()),
          .reused = record.has("reused") ? record.bytes("reused") : 0};
}

/// An array may leave the last field out.
JsonRecord::Fields fields_of(const json& item, JsonRecord::Fields fields, JsonRecord::Form form) {
  const bool shorter = form == JsonRecord::Form::kArray && item.size() < fields.size();
  return shorter ? fields.first(fields.size() - 1) : fields;
}

template <class Item>
std::vector<Item> read_list(const JsonRecord& graph, const char* name, JsonRecord::Fields fields, JsonRecord::Form form,
                            Item (*read)(const JsonRecord&)) {
  const json& list = graph.list(name);
  std::vector<Item> items;
  items.reserve(list.size());
  JsonPlace place{kGraphDocument, name, 0};
  for (const json& item : list) {
    items.push_back(read(JsonRecord(item, place, fields_of(item, fields, form), form)));
    ++place.index;
  }
  return items;
}

void write_value(std::string& out, const GraphValue& value, const JsonPlace& /*place*/) {
  append_json(out, "{\"bytes\": ", value.bytes);
  append_json(out, ", \"producer\": ", int64_t{value.producer});
  append_json(out, ", \"packed_bytes\": ", value.packed_bytes);
  out += value.droppable ? ", \"droppable\": true" : ", \"droppable\": false";
  out += value.dropped ? ", \"dropped\": true}" : ", \"dropped\": false}";
}

void write_operator(std::string& out, const GraphOperator& op, const JsonPlace& place) {
  out += "{\"name\": ";
  append_json(out, op.name, place, "name");
  append_json(out, ", \"seconds\": ", op.seconds);
  append_json(out, ", \"replay_seconds\": ", op.replay_seconds);
  append_json(out, ", \"scratch_bytes\": ", op.scratch_bytes);
  append_json(out, ", \"inputs\": ", op.inputs);
  append_json(out, ", \"overwritten\": ", op.overwritten);
  append_json(out, ", \"results\": ", op.results);
  out += '}';
}

void write_event(std::string& out, const GraphEvent& event, const JsonPlace& /*place*/) {
  out += std::string("[\"") + kKindNames[static_cast<size_t>(event.kind)] + "\", ";
  append_json(out, int64_t{event.index});
  append_json(out, ", ", event.rise);
  append_json(out, ", ", event.delta);
  if (event.reused != 0) append_json(out, ", ", event.reused);
  out += ']';
}

/// One item a line, so that people and diffs can read them.
template <class Item>
void write_list(std::string& out, const char* name, const std::vector<Item>& items,
                void (*write)(std::string&, const Item&, const JsonPlace&)) {
  out += std::string(",\n \"") + name + "\": [";
  JsonPlace place{kGraphDocument, name, 0};
  for (const Item& item : items) {
    out += place.index == 0 ? "\n  " : ",\n  ";
    write(out, item, place);
    ++place.index;
  }
  out += items.empty() ? "]" : "\n ]";
}

}  // namespace

std::string to_json(const Graph& graph) {
  // A graph that could not be read again is not written.
  if (const std::string wrong = graph.problem(); !wrong.empty())
    throw Error("[graph] " + wrong + "; only a sound graph can be written");
  std::string out = std::string("{\n \"format\": \"") + kGraphFormat + "\",\n \"version\": ";
  append_json(out, int64_t{graph.tier ? Graph::kVersion : Graph::kOldestVersion});
  append_json(out, ",\n \"baseline_bytes\": ", graph.baseline_bytes);
  append_json(out, ",\n \"parameter_bytes\": ", graph.parameter_bytes);
  append_json(out, ",\n \"gradient_bytes\": ", graph.gradient_bytes);
  append_json(out, ",\n \"step_seconds\": ", graph.step_seconds);
  if (graph.tier) {
    append_json(out, ",\n \"tier\": {\"bytes\": ", graph.tier->bytes);
    append_json(out, ", \"copy_seconds\": ", graph.tier->copy_seconds);
    append_json(out, ", \"costs\": ", graph.tier->costs);
    out += '}';
  }
  write_list(out, "values", graph.values, write_value);
  write_list(out, "operators", graph.operators, write_operator);
  write_list(out, "events", graph.events, write_event);
  return out + "\n}\n";
}

Graph graph_from_json(std::string_view text) {
  const json document = parse_document(text, kGraphDocument, kGraphFormat, {Graph::kOldestVersion, Graph::kVersion});
  JsonRecord::Fields fields(kGraphFields);
  if (document["version"] != Graph::kVersion) fields = fields.first(fields.size() - 1);
  const JsonRecord record(document, {kGraphDocument}, fields);
  using Form = JsonRecord::Form;
  Graph graph{.values = read_list(record, "values", kValueFields, Form::kObject, read_value),
              .operators = read_list(record, "operators", kOperatorFields, Form::kObject, read_operator),
              .events = read_list(record, "events", kEventFields, Form::kArray, read_event),
              .baseline_bytes = record.bytes("baseline_bytes"),
              .parameter_bytes = record.bytes("parameter_bytes"),
              .gradient_bytes = record.bytes("gradient_bytes"),
              .step_seconds = record.seconds("step_seconds"),
              .tier = record.has("tier") ? std::optional(read_tier(record)) : std::nullopt};
  if (const std::string wrong = graph.problem(); !wrong.empty())
    throw Error("[graph] " + wrong + "; the text was changed or is of a faulty recording, record the step again");
  return graph;
}

}  // namespace remat
