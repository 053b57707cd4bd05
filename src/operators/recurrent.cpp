// Recurrent layers as one kernel: oneDNN's and cuDNN's. One of their results is scratch for backward, with padding that
// no kernel fills or reads: its bits differ from call to call, and are compared with nothing. Without this file the
// results of operators on packed sequences are kept.
#include <array>

#include "operators/operator_info.h"
#include "operators/special_operator.h"

namespace remat {
namespace {

struct Recurrent {
  std::string_view name;
  int16_t workspace;
};
constexpr std::array<Recurrent, 2> kOperators = {{{"aten::mkldnn_rnn_layer", 3}, {"aten::_cudnn_rnn", 3}}};

void describe(OperatorInfo& info) {
  for (const Recurrent& op : kOperators) {
    if (info.base_view() == op.name) info.workspace_result = op.workspace;
  }
}

}  // namespace

const SpecialOperator special::kRecurrent = {.name = "recurrent", .settles = Doubt::kPadding, .describe = describe};

}  // namespace remat
