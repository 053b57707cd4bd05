#include "cli/step_message.h"

#include <bit>

#include <nlohmann/json.hpp>

#include <remat/error.h>
#include <remat/report.h>

#include "cli/failure.h"
#include "cli/head_loss.h"

namespace remat::cli {
namespace {

using nlohmann::json;

// Bytes of a path that are no UTF-8 may stand in messages.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json fingerprints_json(const Fingerprints& fingerprints) {
  auto list = json::array();
  for (const auto& print : fingerprints) list.push_back({print.name, print.low, print.high});
  return list;
}

Fingerprints read_fingerprints(const json& list) {
  Fingerprints fingerprints;
  for (const auto& print : list) fingerprints.push_back({print.at(0), print.at(1), print.at(2)});
  return fingerprints;
}

}  // namespace

std::string step_message(const StepResult& result) {
  json message = {{"step", result.step},
                  {"loss_bits", std::bit_cast<uint32_t>(result.loss)},
                  {"seconds", result.seconds},
                  {"baseline_bytes", result.baseline_bytes},
                  {"peak_bytes", result.peak_bytes},
                  {"gradients", fingerprints_json(result.gradients)},
                  {"parameters", fingerprints_json(result.parameters)}};
  if (result.report) message["report"] = to_json(*result.report);
  if (result.head) message["head"] = head_json(*result.head);
  if (result.budget_bytes) message["budget_bytes"] = *result.budget_bytes;
  return dump(message);
}

StepResult read_step_message(const std::string& line) {
  const auto message = json::parse(line);
  StepResult result;
  message.at("step").get_to(result.step);
  result.loss = std::bit_cast<float>(message.at("loss_bits").get<uint32_t>());
  message.at("seconds").get_to(result.seconds);
  message.at("baseline_bytes").get_to(result.baseline_bytes);
  message.at("peak_bytes").get_to(result.peak_bytes);
  result.gradients = read_fingerprints(message.at("gradients"));
  result.parameters = read_fingerprints(message.at("parameters"));
  if (message.contains("head")) result.head = head_from_json(message.at("head"));
  if (message.contains("budget_bytes")) result.budget_bytes = message.at("budget_bytes").get<int64_t>();
  if (message.contains("report")) result.report = report_from_json(message.at("report").get<std::string>());
  return result;
}

std::string error_message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const BudgetError& budget) {
    json message = {{"error", "budget"},
                    {"message", budget.what()},
                    {"budget_bytes", budget.budget_bytes()},
                    {"lower_bound_bytes", budget.lower_bound_bytes()},
                    {"needed_bytes", budget.needed_bytes()}};
    if (budget.smallest_known_bytes()) message["smallest_known_bytes"] = *budget.smallest_known_bytes();
    if (budget.needed_percent()) message["needed_percent"] = *budget.needed_percent();
    return dump(message);
  } catch (...) {
    return dump({{"error", "other"}, {"message", failure_of(error).message}});
  }
}

void throw_if_error(const std::string& line) {
  const auto message = json::parse(line);
  if (!message.contains("error")) return;
  const auto text = message.at("message").get<std::string>();
  if (message.at("error") != "budget") throw Error(text);
  std::optional<int64_t> smallest;
  if (message.contains("smallest_known_bytes")) smallest = message.at("smallest_known_bytes").get<int64_t>();
  std::optional<double> percent;
  if (message.contains("needed_percent")) percent = message.at("needed_percent").get<double>();
  throw BudgetError(text, message.at("budget_bytes"), message.at("lower_bound_bytes"), smallest,
                    message.at("needed_bytes").get<int64_t>(), percent);
}

}  // namespace remat::cli
