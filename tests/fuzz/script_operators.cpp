// TorchScript functions that change a list after an operator has read it, and lists that the caller changes.
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/jit.h>

#include "fuzz/machine.h"

namespace remat::fuzz {

namespace {

constexpr const char* kSource = R"(
def flips(x, dims: List[int]):
    y = torch.flip(x * x, dims)
    dims[0] = 1 - dims[0]
    z = torch.flip(y.sin(), dims)
    return z * z.cos()

def sums(x, dims: List[int]):
    y = torch.sum(x.exp(), dims, True)
    dims.append(1)
    return y.sin() * torch.sum(x.tanh(), dims, True).cos()

def rolls(x, shifts: List[int], dims: List[int]):
    y = torch.roll(x.sin(), shifts, dims)
    shifts[0] = shifts[0] + 1
    dims[0] = 0
    y = torch.roll(y * y, shifts, dims)
    shifts[0] = 0
    return y.cos() * y

def repeats(x, times: List[int]):
    y = x.sin().repeat(times)
    times[0] = 2
    times[1] = 1
    return (y * y).cos()

def joins(x, dims: List[int]):
    parts = [x.sin(), x * x]
    y = torch.cat(parts, 0)
    parts[0] = x.cos()
    z = torch.cat(parts, 0)
    parts.pop()
    return (y * z).tanh() * torch.cat(parts + parts, 0).sin()

def picks(x, dims: List[int]):
    where: List[Optional[Tensor]] = [torch.zeros([2], dtype=torch.long)]
    y = torch.ops.aten.index(x * x, where)
    where[0] = torch.zeros([1], dtype=torch.long)
    return y.sin() * torch.ops.aten.index(x.sin(), where).cos()

def pads(x, sides: List[int]):
    y = torch.constant_pad_nd(x.sin(), sides, 0.5)
    sides[0] = 0
    sides[1] = 2
    return y.cos() * torch.constant_pad_nd(x * x, sides, 0.25).sum()
)";

/// The executor must not rewrite functions once it has seen them run: plain and remat would run different operators.
torch::jit::CompilationUnit& functions() {
  static const auto unit = [] {
    torch::jit::setGraphExecutorOptimize(false);
    return torch::jit::compile(kSource);
  }();
  return *unit;
}

void script(Machine& m) {
  const Slot x = m.pick([](const Slot& s) {
    return is_float(s.t) && s.t.dim() == 2 && s.t.size(0) > 0 && s.t.size(1) > 0 && s.t.layout() == at::kStrided;
  });
  if (!x) return;
  auto& unit = functions();
  using Numbers = c10::List<int64_t>;
  const auto call = [&](const char* name, auto... lists) {
    m.emit(std::string(name) + "(" + x.name() + ") in TorchScript",
           [&] { return unit.run_method(name, x.t, lists...).toTensor(); });
  };
  switch (m.random().below(8)) {
    case 0:
      return call("flips", Numbers({m.random().below(2)}));
    case 1:
      return call("sums", Numbers({0}));
    case 2:
      return call("rolls", Numbers({m.random().between(1, 3)}), Numbers({1}));
    case 3:
      return call("repeats", Numbers({1, 2}));
    case 4:
      return call("joins", Numbers());
    case 5:
      return call("picks", Numbers());
    case 6:
      return call("pads", Numbers({1, 1}));
    default: {  // an operator called with a list that its caller changes
      const Numbers dims({m.random().below(2)});
      return m.emit("flip of " + x.name() + " by a list of the caller's", [&] {
        const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::flip", "");
        torch::jit::Stack stack{x.t * x.t, dims};
        op.callBoxed(stack);
        dims.set(0, 1 - dims.get(0));
        return stack[0].toTensor().sin();
      });
    }
  }
}

}  // namespace

std::vector<Operator> script_operators() { return {{"script", 1, script}}; }

}  // namespace remat::fuzz
