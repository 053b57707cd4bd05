// What torch.compile made, as the operators of python/src/compiled.cpp: memory without contents, and a kernel that is
// launched on it. Inductor's kernels do what their schemas say, and compute random numbers from seeds that an operator
// has drawn. Without this file they are looked at like a user's, and nothing that is made in such memory is replayed.
#include "operators/operator_info.h"
#include "operators/special_operator.h"

namespace remat {
namespace {

void describe(OperatorInfo& info) {
  const std::string_view base = info.base_view();
  info.blank = base == "compiled::empty_strided";
  info.trusted = info.blank || base.starts_with("compiled::kernel_");
  if (info.blank) info.workspace_result = 0;
}

}  // namespace

const SpecialOperator special::kCompiledCode = {.name = "compiled_code", .describe = describe};

}  // namespace remat
