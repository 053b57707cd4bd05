#include "cli/training_order.h"

#include <bit>
#include <exception>

#include <remat/error.h>

#include "cli/step_message.h"

namespace remat::cli {
namespace {

using nlohmann::json;

constexpr const char* kStep = "step";
constexpr const char* kEvaluate = "evaluate";
constexpr const char* kWrite = "write";

std::string what(const json& order) { return order.at("order").get<std::string>(); }

}  // namespace

std::string step_order() { return json{{"order", kStep}}.dump(); }
std::string evaluation_order() { return json{{"order", kEvaluate}}.dump(); }

std::string write_order(Output output, const std::string& path, const json& about) {
  // A path is bytes, of which JSON cannot hold all.
  const json bytes(std::vector<uint8_t>(path.begin(), path.end()));
  return json{{"order", kWrite}, {"output", static_cast<int>(output)}, {"path", bytes}, {"about", about}}.dump();
}

std::string carry_out(const std::string& order, ModelTraining& training) {
  const auto asked = json::parse(order);
  if (what(asked) == kStep) {
    const StepResult result = training.step();
    return json{{"current_bytes", training.current_bytes()}}.dump() + "\n" + step_message(result);
  }
  if (what(asked) == kEvaluate) {
    const auto evaluation = training.evaluate();
    json answer = json::object();
    if (evaluation) answer["loss_bits"] = std::bit_cast<uint64_t>(evaluation->loss);
    if (evaluation && evaluation->accuracy) answer["accuracy_bits"] = std::bit_cast<uint64_t>(*evaluation->accuracy);
    return answer.dump();
  }
  const auto bytes = asked.at("path").get<std::vector<uint8_t>>();
  training.write(static_cast<Output>(asked.at("output").get<int>()), {bytes.begin(), bytes.end()}, asked.at("about"));
  return json::object().dump();
}

bool goes_on_after(const std::string& order, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const BudgetError&) {
    return true;
  } catch (const UnreadExamples&) {
    return true;
  } catch (const Error&) {
    return what(json::parse(order)) == kWrite;
  } catch (...) {
    return false;
  }
}

std::optional<Evaluation> read_evaluation(const std::string& answer) {
  const auto parsed = json::parse(answer);
  const auto number = [&](const char* name) { return std::bit_cast<double>(parsed.at(name).get<uint64_t>()); };
  if (!parsed.contains("loss_bits")) return std::nullopt;
  Evaluation evaluation{.loss = number("loss_bits"), .accuracy = std::nullopt};
  if (parsed.contains("accuracy_bits")) evaluation.accuracy = number("accuracy_bits");
  return evaluation;
}

}  // namespace remat::cli
