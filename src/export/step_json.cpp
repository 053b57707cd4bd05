#include <algorithm>
#include <cmath>
#include <iterator>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "export/call_sizes.h"
#include "export/kernels.h"
#include "export/step.h"
#include "plan/json.h"

namespace remat::exporting {
namespace {

using nlohmann::json;

constexpr const char* kDocument = "step";
constexpr const char* kStepFields[] = {"format",  "version",   "name",    "loss",     "output",
                                       "counter", "gradients", "buffers", "operators"};
constexpr const char* kBufferFields[] = {"name", "kind", "type", "shape", "values"};
constexpr const char* kOperatorFields[] = {"kernel",    "phase",     "inputs",   "results",
                                           "arguments", "workspace", "in_place", "source"};
constexpr const char* kGradientFields[] = {"parameter", "gradient", "transposed"};
constexpr const char* kReadFields[] = {"buffer", "offset"};
constexpr const char* kPairFields[] = {"input", "result"};

constexpr const char* kKinds[] = {"parameter", "constant", "state", "input", "value"};
constexpr const char* kTypes[] = {"float32", "int32", "uint32", "uint8", "bits"};
constexpr const char* kPhases[] = {"forward", "backward", "predict"};
constexpr int64_t kMostElements = int64_t{1} << 28;

template <size_t Count>
int one_of(const JsonRecord& record, const char* field, const char* const (&names)[Count]) {
  const auto found = std::ranges::find_if(names, [&](const char* name) { return record.text(field) == name; });
  if (found == std::end(names)) record.refuse(field, "is none of those that there are");
  return static_cast<int>(found - std::begin(names));
}

/// The types that C has an array for; values have all, and the counter, a state, is of unsigned numbers.
void check_type(const StepBuffer& buffer, const JsonRecord& record) {
  using Kind = StepBuffer::Kind;
  using Type = StepBuffer::Type;
  const bool whole = buffer.type == Type::kInt;
  const bool fits = buffer.type == Type::kFloat || buffer.kind == Kind::kValue ||
                    (whole && (buffer.kind == Kind::kConstant || buffer.kind == Kind::kInput)) ||
                    (buffer.type == Type::kUnsigned && buffer.kind == Kind::kState);
  if (!fits) record.refuse("type", "is none that a buffer of this kind has");
  const auto is_int = [](double value) { return value == std::floor(value) && std::abs(value) <= 2147483647; };
  if (whole && !std::ranges::all_of(buffer.values, is_int)) record.refuse("values", "has a number that is no int32");
}

StepBuffer read_buffer(const JsonRecord& record) {
  StepBuffer buffer;
  buffer.name = record.text("name");
  buffer.kind = static_cast<StepBuffer::Kind>(one_of(record, "kind", kKinds));
  buffer.type = static_cast<StepBuffer::Type>(one_of(record, "type", kTypes));
  buffer.elements = 1;
  for (const json& size : record.list("shape")) {
    if (!size.is_number_integer() || size.get<int64_t>() < 1 || size.get<int64_t>() > kMostElements)
      record.refuse("shape", "has a size that is not between 1 and 2^28");
    buffer.shape.push_back(size.get<int64_t>());
    buffer.elements *= buffer.shape.back();
    if (buffer.elements > kMostElements) record.refuse("shape", "has more than 2^28 elements");
  }
  const int64_t bits = buffer.type == StepBuffer::Type::kBits ? 1 : buffer.type == StepBuffer::Type::kByte ? 8 : 32;
  buffer.bytes = (buffer.elements * bits + 31) / 32 * 4;
  for (const json& value : record.list("values")) {
    if (!value.is_number()) record.refuse("values", "has something that is no number");
    buffer.values.push_back(value.get<double>());
    if (std::abs(buffer.values.back()) > 3.4028235677973366e38)
      record.refuse("values", "has a number that no float has");
  }
  check_type(buffer, record);
  const bool filled = buffer.values.size() == static_cast<size_t>(buffer.elements);
  if (!buffer.values.empty() && !filled) record.refuse("values", "has not as many numbers as the shape has elements");
  if (buffer.kind == StepBuffer::Kind::kConstant && !filled) record.refuse("values", "is empty, of a constant");
  return buffer;
}

class StepReader {
 public:
  explicit StepReader(std::string_view text)
      : root_(parse_document(text, kDocument, "remat-step", {Step::kVersion, Step::kVersion})) {}

  Step read() {
    const JsonRecord record(root_, {kDocument}, kStepFields);
    step_.name = record.text("name");
    JsonPlace place{kDocument, "buffers", 0};
    for (const json& item : record.list("buffers")) {
      step_.buffers.push_back(read_buffer(JsonRecord(item, place, kBufferFields)));
      ++place.index;
    }
    place = {kDocument, "operators", 0};
    for (const json& item : record.list("operators")) {
      step_.operators.push_back(read_operator(JsonRecord(item, place, kOperatorFields)));
      ++place.index;
    }
    place = {kDocument, "gradients", 0};
    for (const json& item : record.list("gradients")) {
      const JsonRecord gradient(item, place, kGradientFields, JsonRecord::Form::kArray);
      step_.gradients.push_back(
          {buffer(gradient, "parameter"), buffer(gradient, "gradient"), gradient.integer("transposed", 0, 1) == 1});
      ++place.index;
    }
    step_.loss = buffer(record, "loss");
    step_.output = record.index("output") < 0 ? -1 : buffer(record, "output");
    step_.counter = record.index("counter") < 0 ? -1 : buffer(record, "counter");
    return std::move(step_);
  }

 private:
  int32_t buffer(const JsonRecord& record, const char* field) const {
    const int64_t last = static_cast<int64_t>(step_.buffers.size()) - 1;
    if (last < 0) record.refuse(field, "is of a buffer, and there is none");
    return static_cast<int32_t>(record.integer(field, 0, last));
  }

  StepOperator read_operator(const JsonRecord& record) const {
    const auto count = static_cast<int64_t>(step_.buffers.size());
    StepOperator op;
    op.kernel = record.text("kernel");
    op.phase = static_cast<StepOperator::Phase>(one_of(record, "phase", kPhases));
    const JsonPlace inside{kDocument, "operators"};
    for (const json& item : record.list("inputs")) {
      const JsonRecord read(item, inside, kReadFields, JsonRecord::Form::kArray);
      const auto index = static_cast<int32_t>(read.integer("buffer", -1, count - 1));
      op.inputs.push_back({index, read.integer("offset", 0, index < 0 ? 0 : step_.buffers[index].elements - 1)});
    }
    for (const json& item : record.list("results")) {
      if (!item.is_number_integer() || item.get<int64_t>() < -1 || item.get<int64_t>() >= count)
        record.refuse("results", "has a buffer that there is not");
      op.results.push_back(item.get<int32_t>());
      if (op.results.back() >= 0 && !step_.is_value(op.results.back()))
        record.refuse("results", "has a buffer that is no value");
    }
    op.workspace = (record.integer("workspace", 0, kMostElements) + 3) & ~int64_t{3};
    for (const json& item : record.list("in_place")) {
      const JsonRecord pair(item, inside, kPairFields, JsonRecord::Form::kArray);
      op.in_place.emplace_back(pair.integer("input", 0, static_cast<int64_t>(op.inputs.size()) - 1),
                               pair.integer("result", 0, static_cast<int64_t>(op.results.size()) - 1));
    }
    op.source = record.text("source");
    const json& arguments = record["arguments"];
    if (!arguments.is_object()) record.refuse("arguments", "is not an object");
    for (const auto& [name, value] : arguments.items()) {
      StepArgument argument{name, {}};
      for (const json& number : value.is_array() ? value : json::array({value})) {
        if (!number.is_number()) record.refuse("arguments", "has something that is no number");
        argument.numbers.push_back(number.get<double>());
      }
      op.arguments.push_back(std::move(argument));
    }
    return op;
  }

  const json root_;
  Step step_;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error("[step] " + what + "; docs/formats.md says what belongs there");
}

/// A state that an operator without results writes is read by nothing else: a replay would read what is written by
/// then.
void check_states(const Step& step) {
  std::vector<bool> written(step.buffers.size(), false);
  for (const StepOperator& op : step.operators) {
    for (const StepRead& read : op.inputs) {
      if (read.buffer >= 0 && op.results.empty()) written[read.buffer] = true;
    }
  }
  for (size_t i = 0; i < step.operators.size(); ++i) {
    const StepOperator& op = step.operators[i];
    if (op.phase == StepOperator::Phase::kPredict || op.results.empty()) continue;
    for (const StepRead& read : op.inputs) {
      if (read.buffer >= 0 && written[read.buffer] && step.buffers[read.buffer].kind == StepBuffer::Kind::kState)
        refuse("operators[" + std::to_string(i) + "] reads a state that the step writes");
    }
  }
}

/// Order, and that each value is made once and before it is read.
void check_order(const Step& step) {
  std::vector<StepOperator::Phase> made_in(step.buffers.size());
  std::vector<bool> made(step.buffers.size(), false);
  auto phase = StepOperator::Phase::kForward;
  for (size_t i = 0; i < step.operators.size(); ++i) {
    const StepOperator& op = step.operators[i];
    const std::string place = "operators[" + std::to_string(i) + "] ";
    if (op.phase < phase) refuse(place + "is of an earlier phase than the one before it");
    phase = op.phase;
    for (const StepRead& read : op.inputs) {
      if (!step.is_value(read.buffer)) continue;
      const bool predicts = phase == StepOperator::Phase::kPredict;
      const bool here = made[read.buffer] && (made_in[read.buffer] == StepOperator::Phase::kPredict) == predicts;
      if (!here) refuse(place + "reads a value that was not made before");
    }
    for (const int32_t result : op.results) {
      if (result < 0) continue;
      if (made[result]) refuse(place + "makes a value again");
      made[result] = true;
      made_in[result] = phase;
    }
    for (const auto& [input, result] : op.in_place) {
      const int32_t from = op.inputs[input].buffer, to = op.results[result];
      if (from < 0 || to < 0 || !step.is_value(from) || step.buffers[from].bytes < step.buffers[to].bytes)
        refuse(place + "has a result in place that does not fit there");
    }
  }
  const auto made_by = [&](int32_t buffer, StepOperator::Phase by) { return made[buffer] && made_in[buffer] == by; };
  if (!made_by(step.loss, StepOperator::Phase::kForward) || step.buffers[step.loss].elements != 1)
    refuse("loss is no single number that the forward pass makes");
  if (step.output >= 0 && !made_by(step.output, StepOperator::Phase::kPredict))
    refuse("output is not made by the prediction");
  std::vector<bool> has_gradient(step.buffers.size(), false);
  for (const StepGradient& g : step.gradients) {
    const StepBuffer& parameter = step.buffers[g.parameter];
    if (parameter.kind != StepBuffer::Kind::kParameter || has_gradient[g.parameter] || !made[g.gradient] ||
        made_in[g.gradient] == StepOperator::Phase::kPredict ||
        step.buffers[g.gradient].elements != parameter.elements ||
        step.buffers[g.gradient].type != StepBuffer::Type::kFloat || parameter.type != StepBuffer::Type::kFloat)
      refuse("gradients has one that suits no parameter");
    has_gradient[g.parameter] = true;
  }
  for (int32_t b = 0; b < static_cast<int32_t>(step.buffers.size()); ++b) {
    if (step.buffers[b].kind == StepBuffer::Kind::kState && step.buffers[b].type != StepBuffer::Type::kFloat &&
        b != step.counter)
      refuse("buffers[" + std::to_string(b) + "] is a state of unsigned numbers, and not the counter");
  }
  if (step.counter >= 0 && step.buffers[step.counter].kind != StepBuffer::Kind::kState) refuse("counter is no state");
  if (step.counter >= 0 &&
      (step.buffers[step.counter].type != StepBuffer::Type::kUnsigned || step.buffers[step.counter].elements != 2))
    refuse("counter has not two numbers");
}

}  // namespace

double StepOperator::argument(std::string_view name, size_t index) const {
  const auto found = std::ranges::find(arguments, name, &StepArgument::name);
  return found == arguments.end() || index >= found->numbers.size() ? 0 : found->numbers[index];
}

bool StepOperator::reads(int32_t buffer) const {
  return std::ranges::any_of(inputs, [buffer](const StepRead& read) { return read.buffer == buffer; });
}

Step step_from_json(std::string_view text) {
  Step step = StepReader(text).read();
  for (size_t i = 0; i < step.operators.size(); ++i) check_call(step, i);
  for (size_t i = 0; i < step.operators.size(); ++i) check_sizes(step, i);
  check_order(step);
  check_states(step);
  return step;
}

}  // namespace remat::exporting
