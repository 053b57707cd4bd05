// Forward code that torch.compile made, as operators of the dispatcher: one operator for each compiled graph. They are
// recorded, dropped and replayed like any others. python/remat/compiled.py says for which graphs.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <remat/error.h>
#include <remat/extension.h>
#include <remat/operators.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "module.h"

namespace remat::python {
namespace {

using Inputs = c10::List<std::optional<at::Tensor>>;

/// A call by the compiler's own code, which wants to have more than the tensors that the graph made.
struct Call {
  py::object results;  ///< of the graph, as Python has them: inputs and numbers among them
  py::object updated;  ///< the new contents of the inputs that it writes to
};

/// The kernel finds it here; null while it runs for a replay.
thread_local Call* t_call = nullptr;

/// The operators by name. With the interpreter's lock held. Never destroyed, as Python may be gone by then.
std::unordered_map<c10::OperatorName, py::function>& graphs() {
  static auto* const instance = new std::unordered_map<c10::OperatorName, py::function>;
  return *instance;
}

/// Inputs are tensors and, in the places of those that are none, numbers.
py::list to_python(const Inputs& tensors, const std::vector<int64_t>& numbers) {
  py::list inputs;
  size_t next = 0;
  for (const std::optional<at::Tensor> tensor : tensors) {
    if (tensor) {
      inputs.append(py::cast(*tensor));
    } else {
      inputs.append(numbers[next++]);
    }
  }
  return inputs;
}

/// The tensors among `objects` whose memory the graph allocated. Two that share memory are one value.
void add_made(const py::object& objects, std::vector<const c10::StorageImpl*>& known, c10::List<at::Tensor>& made) {
  for (const py::handle object : objects) {
    if (!THPVariable_Check(object.ptr())) continue;
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    if (tensor.has_storage()) {
      const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      if (std::ranges::find(known, storage) != known.end()) continue;
      known.push_back(storage);
    }
    made.push_back(tensor);
  }
}

void run_graph(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call* const call = std::exchange(t_call, nullptr);
  const auto numbers = torch::jit::pop(stack).toIntVector();
  const Inputs inputs = torch::jit::pop(stack).toOptionalTensorList();
  c10::List<at::Tensor> made;
  {
    const py::gil_scoped_acquire interpreter;
    std::optional<extension::OpaqueRegion> own_operators;  // are parts of this one
    if (extension::is_recording()) own_operators.emplace();
    const auto outcome = graphs().at(op.operator_name())(to_python(inputs, numbers)).cast<py::tuple>();
    std::vector<const c10::StorageImpl*> known;
    for (const std::optional<at::Tensor> input : inputs) {
      if (input && input->has_storage()) known.push_back(input->storage().unsafeGetStorageImpl());
    }
    add_made(outcome[1], known, made);
    add_made(outcome[0], known, made);
    if (call != nullptr) *call = {outcome[0], outcome[1]};
  }
  torch::jit::push(stack, std::move(made));
}

torch::Library& library() {
  static auto* const instance = new torch::Library(torch::Library::FRAGMENT, "compiled", std::nullopt, __FILE__, __LINE__);
  return *instance;
}

/// Makes an operator `name` that runs a graph by `run(inputs)`, which returns its results and the new contents of the
/// inputs that the graph writes to. It may run any number of times.
void define_graph(const std::string& name, py::function run) {
  graphs()[c10::OperatorName("compiled::" + name, "")] = std::move(run);
  library().def(torch::schema((name + "(Tensor?[] tensors, int[] numbers) -> Tensor[]").c_str()));
  library().impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                               torch::CppFunction::makeFromBoxedFunction<&run_graph>()));
  declare_repeatable("compiled::" + name);
}

/// Runs operator `name`, and returns what its `run` returns. None, without running it, where the inputs are not tensors
/// and integers alone.
py::object call_graph(const std::string& name, const py::list& inputs) {
  Inputs tensors;
  std::vector<int64_t> numbers;
  for (const py::handle input : inputs) {
    if (THPVariable_Check(input.ptr())) {
      tensors.push_back(THPVariable_Unpack(input.ptr()));
    } else if (PyLong_CheckExact(input.ptr())) {
      tensors.push_back(std::nullopt);
      numbers.push_back(input.cast<int64_t>());
    } else {
      return py::none();
    }
  }
  inputs.attr("clear")();  // as compiled code does
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("compiled::" + name).c_str(), "");
  torch::jit::Stack stack;
  torch::jit::push(stack, std::move(tensors), std::move(numbers));
  Call call;
  {
    const py::gil_scoped_release others_may_run;
    t_call = &call;
    try {
      op.callBoxed(stack);
    } catch (...) {
      t_call = nullptr;
      throw;
    }
  }
  return py::make_tuple(call.results, call.updated);
}

}  // namespace

void bind_compiled(py::module_& m) {
  m.def("define_graph", &define_graph);
  m.def("call_graph", &call_graph);
}

}  // namespace remat::python
