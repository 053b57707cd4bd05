#include <remat/plan.h>

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "plan/json.h"

namespace remat {
namespace {

using nlohmann::json;

constexpr const char* kDocument = "plan";
constexpr const char* kFormat = "remat-plan";

constexpr const char* kPlanFields[] = {
    "format", "version", "planner", "graph_fingerprint", "budget_bytes", "predicted_peak_bytes", "predicted_seconds",
    "fates"};
// By Fate.
constexpr std::array kFateNames = {"keep", "drop", "drop_again", "pack"};

[[noreturn]] void refuse_to_write(const std::string& why) {
  throw Error("[plan] " + why + "; only a sound plan can be written");
}

uint64_t read_fingerprint(const JsonRecord& plan) {
  const std::string& text = plan.text("graph_fingerprint");
  const char* const end = text.data() + text.size();
  uint64_t number = 0;
  const auto [rest, failure] = std::from_chars(text.data(), end, number, 16);
  if (text.size() != 16 || failure != std::errc{} || rest != end)
    plan.refuse("graph_fingerprint", "is not 16 hexadecimal digits");
  return number;
}

/// Every value stands in exactly one list, so the lists' lengths say how many values there are. A number beside them
/// could claim any, and a short text would make us allocate for them.
std::vector<Fate> read_fates(const JsonRecord& plan) {
  const JsonRecord record(plan["fates"], {kDocument, "fates"}, kFateNames);
  size_t count = 0;
  for (const char* name : kFateNames) count += record.list(name).size();
  std::vector<Fate> fates(count);
  std::vector<bool> known(count, false);
  for (size_t fate = 0; fate < kFateNames.size(); ++fate) {
    const char* const name = kFateNames[fate];
    for (const int32_t value : record.indexes(name)) {
      const auto v = static_cast<size_t>(value);
      if (v >= count)
        record.refuse(name, "has value " + std::to_string(v) + ", but the lists together have " +
                                std::to_string(count) + " values, which are numbered from 0");
      if (known[v]) record.refuse(name, "has value " + std::to_string(v) + " a second time");
      known[v] = true;
      fates[v] = static_cast<Fate>(fate);
    }
  }
  return fates;
}

void write_fate(std::string& out, const Plan& plan, Fate fate) {
  std::vector<int32_t> values;
  for (size_t v = 0; v < plan.fates.size(); ++v) {
    if (plan.fates[v] == fate) values.push_back(static_cast<int32_t>(v));
  }
  out += std::string("  \"") + kFateNames[static_cast<size_t>(fate)] + "\": ";
  append_json(out, values);
}

}  // namespace

std::string to_json(const Plan& plan) {
  if (plan.budget_bytes < 0) refuse_to_write("budget_bytes is " + std::to_string(plan.budget_bytes));
  if (plan.predicted_peak_bytes < 0)
    refuse_to_write("predicted_peak_bytes is " + std::to_string(plan.predicted_peak_bytes));
  if (!std::isfinite(plan.predicted_seconds) || plan.predicted_seconds < 0)
    refuse_to_write("predicted_seconds is " + std::to_string(plan.predicted_seconds));
  for (size_t v = 0; v < plan.fates.size(); ++v) {
    if (static_cast<size_t>(plan.fates[v]) >= kFateNames.size())
      refuse_to_write("value " + std::to_string(v) + " has the unknown fate " +
                      std::to_string(static_cast<int>(plan.fates[v])));
  }

  std::string out = std::string("{\n \"format\": \"") + kFormat + "\",\n \"version\": ";
  append_json(out, int64_t{Plan::kVersion});
  out += ",\n \"planner\": ";
  append_json(out, plan.planner, {kDocument}, "planner");
  out += ",\n \"graph_fingerprint\": \"" + hexadecimal(plan.graph_fingerprint) + "\",\n \"budget_bytes\": ";
  append_json(out, plan.budget_bytes);
  out += ",\n \"predicted_peak_bytes\": ";
  append_json(out, plan.predicted_peak_bytes);
  out += ",\n \"predicted_seconds\": ";
  append_json(out, plan.predicted_seconds);
  out += ",\n \"fates\": {\n";
  // What is kept, mostly the longest list, comes last.
  for (const Fate fate : {Fate::kDrop, Fate::kDropAgain, Fate::kPack}) {
    write_fate(out, plan, fate);
    out += ",\n";
  }
  write_fate(out, plan, Fate::kKeep);
  return out + "\n }\n}\n";
}

Plan plan_from_json(std::string_view text) {
  const json document = parse_document(text, kDocument, kFormat, Plan::kVersion);
  const JsonRecord record(document, {kDocument}, kPlanFields);
  return {.planner = record.text("planner"),
          .graph_fingerprint = read_fingerprint(record),
          .budget_bytes = record.bytes("budget_bytes"),
          .predicted_peak_bytes = record.bytes("predicted_peak_bytes"),
          .predicted_seconds = record.seconds("predicted_seconds"),
          .fates = read_fates(record)};
}

}  // namespace remat
