#include "tape/program.h"

#include <string>
#include <utility>

#include <remat/error.h>

#include "memory/ledger.h"

namespace remat {

Program::~Program() {
  const memory::FrozenPlain frozen;  // plain has no generator states
  generators_.clear();
}

void Program::add_constant_argument(c10::IValue value) {
  arguments_.push_back({Argument::Kind::kConstant, static_cast<uint32_t>(constants_.size()), 0});
  constants_.push_back(std::move(value));
}

void Program::add_tensor_argument(Argument::Kind kind, const Mark& mark) {
  arguments_.push_back(
      {kind, static_cast<uint32_t>(mark.tensors), static_cast<uint32_t>(tensors_.size() - mark.tensors)});
}

uint32_t Program::add_opaque(at::Tensor tensor) {
  opaque_.push_back(std::move(tensor));
  return static_cast<uint32_t>(opaque_.size() - 1);
}

uint32_t Program::add_generator(GeneratorRecord record) {
  generators_.push_back(std::move(record));
  return static_cast<uint32_t>(generators_.size() - 1);
}

void Program::begin_settings(bool has_streams) {
  settings_ = {KernelSettings::current(/*products=*/true)};
  if (has_streams) settings_.front().accelerator = device::KernelSwitches::current();
}

uint32_t Program::add_settings(const OperatorInfo& info) {
  KernelSettings now = KernelSettings::current(info.products);
  if (!info.products) {
    now.switches.precision = settings_.back().switches.precision;
    now.threads.products = settings_.back().threads.products;
  }
  if (!info.foreign) now.switches.attention = settings_.back().switches.attention;
  if (info.foreign) now.autocast = AutocastState::current();
  const auto& accelerator = settings_.back().accelerator;
  if (accelerator) now.accelerator = info.switches ? device::KernelSwitches::current() : accelerator;
  if (settings_.back() != now) settings_.push_back(now);
  return static_cast<uint32_t>(settings_.size() - 1);
}

bool Program::reads_changed_switches(const Operation& operation) const {
  if (!operation.info->switches) return false;
  if (settings(operation).accelerator != first_settings().accelerator) return true;
  KernelSettings::Switches now = settings(operation).switches;
  if (!operation.info->products) now.precision = first_settings().switches.precision;
  if (!operation.info->foreign) now.attention = first_settings().switches.attention;
  return now != first_settings().switches;
}

void Program::erase(const Mark& begin, const Mark& end) {
  const memory::FrozenPlain frozen;  // plain has no generator states
  const auto forget = [last = mark() == end](auto& array, size_t from, size_t to) {
    if (last) {
      array.resize(from);
    } else {  // an operator inside was recorded behind them
      for (size_t i = from; i < to; ++i) array[i] = typename std::decay_t<decltype(array)>::value_type();
    }
  };
  forget(arguments_, begin.arguments, end.arguments);
  forget(tensors_, begin.tensors, end.tensors);
  forget(constants_, begin.constants, end.constants);
  forget(opaque_, begin.opaque, end.opaque);
  forget(generators_, begin.generators, end.generators);
}

void Program::forget(OperationId id) {
  Operation& operation = operations_[id];
  for (uint32_t a = operation.first_argument; a < operation.first_argument + operation.argument_count; ++a) {
    const Argument argument = std::exchange(arguments_[a], Argument());
    if (argument.kind == Argument::Kind::kConstant) constants_[argument.first] = c10::IValue();
    for (uint32_t t = argument.first; t < argument.first + argument.count; ++t) {
      if (tensors_[t].opaque != kNoId) opaque_[tensors_[t].opaque] = at::Tensor();
      tensors_[t] = TensorArgument();
    }
  }
  if (operation.generator != kNoId) {
    const memory::FrozenPlain frozen;
    generators_[operation.generator] = GeneratorRecord();
  }
  operation.info = nullptr;
}

int64_t Program::release_generator(OperationId id) {
  const Operation& operation = operations_[id];
  if (operation.info == nullptr || operation.generator == kNoId) return 0;
  at::Tensor& state = generators_[operation.generator].state;
  if (!state.defined()) return 0;
  const memory::FrozenPlain frozen;
  const auto bytes = static_cast<int64_t>(state.nbytes());
  state.reset();
  return bytes;
}

bool Program::holds_memory(OperationId id) const {
  const Operation& operation = operations_[id];
  if (operation.info == nullptr) return false;
  if (operation.generator != kNoId && generators_[operation.generator].state.defined()) return true;
  bool holds = false;
  for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
    if (t.opaque == kNoId) return;
    const at::Tensor& whole = opaque_[t.opaque];
    if (whole.use_count() > 1) return;
    holds = holds || !whole.has_storage() || whole.storage().use_count() == 1;  // without one it has parts
  });
  return holds;
}

int64_t Program::bytes() const {
  size_t bytes = operations_.capacity() * sizeof(Operation) + arguments_.capacity() * sizeof(Argument) +
                 tensors_.capacity() * sizeof(TensorArgument) + constants_.capacity() * sizeof(c10::IValue) +
                 opaque_.capacity() * sizeof(at::Tensor);
  for (const auto& record : generators_) {
    bytes += sizeof(record);
    if (record.state.defined()) bytes += record.state.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

void Program::validate() const {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw InternalError(std::string("[program] broken invariant: ") + what + "; please report this");
  };
  for (const Operation& operation : operations_) {
    if (operation.info == nullptr) continue;
    check(operation.first_argument + operation.argument_count <= arguments_.size(), "arguments out of range");
    check(operation.generator == kNoId || operation.generator < generators_.size(), "generator out of range");
    check(operation.settings < settings_.size(), "settings out of range");
    for (const Argument& argument : arguments(operation)) {
      const bool constant = argument.kind == Argument::Kind::kConstant;
      check(constant ? argument.first < constants_.size() : argument.first + argument.count <= tensors_.size(),
            "an argument out of range");
    }
    for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
      check(t.value == kNoId || t.value < operation.first_value, "an operation reads a later value");
      check(t.opaque == kNoId || (t.opaque < opaque_.size() && opaque_[t.opaque].defined()), "an opaque input is gone");
    });
  }
}

}  // namespace remat
