// What torch.compile made, as operators of the dispatcher, which are recorded, dropped and replayed like any others:
// one for each kernel that a compiled forward graph launches, or one for the whole graph. python/remat/compiled.py says
// for which.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <remat/error.h>
#include <remat/extension.h>
#include <remat/operators.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "module.h"

namespace remat::python {
namespace {

using Inputs = c10::List<std::optional<at::Tensor>>;

torch::Library& library() {
  static auto* const instance =
      new torch::Library(torch::Library::FRAGMENT, "compiled", std::nullopt, __FILE__, __LINE__);
  return *instance;
}

template <c10::BoxedKernel::BoxedKernelFunction* kRun>
void define(const std::string& name, const std::string& signature) {
  library().def(torch::schema((name + signature).c_str()));
  library().impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                               torch::CppFunction::makeFromBoxedFunction<kRun>()));
}

c10::OperatorHandle find(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("compiled::" + name).c_str(), "");
}

/// What compiled code allocates. torch::empty() would not do: what that makes may be filled through pointers too.
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype) {
  return at::detail::empty_strided_cpu(size, stride, dtype);
}

// ---- Kernels ----

struct Kernel {
  py::function launch;
  std::string arguments;  ///< of each: `r`, a tensor that it reads, `w`, that it writes to, or `n`, a number
};

/// By name. With the interpreter's lock held. Never destroyed, as Python may be gone by then.
std::unordered_map<c10::OperatorName, Kernel>& kernels() {
  static auto* const instance = new std::unordered_map<c10::OperatorName, Kernel>;
  return *instance;
}

void run_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::IValue out = torch::jit::pop(stack);
  const auto written = out.toTensorVector();
  const auto numbers = torch::jit::pop(stack).toIntVector();
  const auto read = torch::jit::pop(stack).toTensorVector();
  torch::jit::push(stack, out);
  const py::gil_scoped_acquire interpreter;
  const Kernel& kernel = kernels().at(op.operator_name());
  py::tuple arguments(kernel.arguments.size());
  auto next_read = read.begin();
  auto next_written = written.begin();
  auto next_number = numbers.begin();
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    switch (kernel.arguments[i]) {
      case 'r':
        arguments[i] = py::cast(*next_read++);
        break;
      case 'w':
        arguments[i] = py::cast(*next_written++);
        break;
      default:
        arguments[i] = py::cast(*next_number++);
    }
  }
  kernel.launch(*arguments);
}

/// Makes an operator `name` of a kernel that is launched by `launch(*arguments)`. It may run any number of times,
/// unless its results differ from run to run.
void define_kernel(const std::string& name, py::function launch, std::string arguments, bool repeatable) {
  kernels()[c10::OperatorName("compiled::" + name, "")] = {std::move(launch), std::move(arguments)};
  define<&run_kernel>(name, "(Tensor[] read, int[] numbers, *, Tensor(a!)[] out) -> Tensor(a!)[]");
  if (repeatable) declare_repeatable("compiled::" + name);
}

void call_kernel(const std::string& name, const py::args& arguments) {
  const std::string& kinds = kernels().at(c10::OperatorName("compiled::" + name, "")).arguments;
  std::vector<at::Tensor> read, written;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const py::handle argument = arguments[i];
    switch (kinds[i]) {
      case 'r':
        read.push_back(THPVariable_Unpack(argument.ptr()));
        break;
      case 'w':
        written.push_back(THPVariable_Unpack(argument.ptr()));
        break;
      default:
        numbers.push_back(argument.cast<int64_t>());
    }
  }
  // It may write to a part, or read what is there: only what nobody has written to yet is nothing to it.
  for (const at::Tensor& tensor : written) {
    if (!extension::is_unwritten(tensor)) read.push_back(tensor);
  }
  const auto op = find(name);
  torch::jit::Stack stack;
  torch::jit::push(stack, std::move(read), std::move(numbers), std::move(written));
  const py::gil_scoped_release others_may_run;
  op.callBoxed(stack);
}

// ---- Graphs ----

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

/// Makes an operator `name` that runs a graph by `run(inputs)`, which returns its results and the new contents of the
/// inputs that the graph writes to. It may run any number of times.
void define_graph(const std::string& name, py::function run) {
  graphs()[c10::OperatorName("compiled::" + name, "")] = std::move(run);
  define<&run_graph>(name, "(Tensor?[] tensors, int[] numbers) -> Tensor[]");
  declare_repeatable("compiled::" + name);
}

/// Runs operator `name` on tensors and integers, and returns what its `run` returns. Empties the list.
py::tuple call_graph(const std::string& name, const py::list& inputs) {
  Inputs tensors;
  std::vector<int64_t> numbers;
  for (const py::handle input : inputs) {
    if (THPVariable_Check(input.ptr())) {
      tensors.push_back(THPVariable_Unpack(input.ptr()));
    } else {
      tensors.push_back(std::nullopt);
      numbers.push_back(input.cast<int64_t>());
    }
  }
  inputs.attr("clear")();  // as compiled code does
  const auto op = find(name);
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
  // Nobody fills what it makes.
  library().def("empty_strided(int[] size, int[] stride, *, ScalarType dtype) -> Tensor",
                {at::Tag::nondeterministic_bitwise});
  library().impl("empty_strided", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &empty_strided));
  m.def("define_kernel", &define_kernel);
  m.def("call_kernel", &call_kernel);
  m.def("define_graph", &define_graph);
  m.def("call_graph", &call_graph);
}

}  // namespace remat::python
