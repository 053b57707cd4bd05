#include "export/kernels.h"

#include <algorithm>
#include <cmath>

#include <remat/error.h>

namespace remat::exporting {
namespace {

// Fields: a name; "name:4" is a list, "name.f" a float. Tensors: f, i, u, 8 (bytes), b (bits), s (a gradient); with "?"
// it may be absent.
struct Row {
  std::string_view name, structure, file, fields, inputs, results;
  bool workspace = false, by_input = false;
};

constexpr std::string_view kMatmul = "b m k n ab am ak bb bk bn relu scale.f";
constexpr std::string_view kConv = "n c h w o kh kw sh sw ph pw dh dw g oh ow relu";
constexpr std::string_view kPool = "planes h w oh ow kh kw sh sw ph pw count_pad";
constexpr std::string_view kSum = "outer middle inner scale.f";
constexpr std::string_view kNorm = "rows groups channels inner eps.f";
constexpr std::string_view kBatchNorm = "n channels inner train eps.f";
constexpr std::string_view kUnary = "n function p.f q.f";
constexpr std::string_view kNll = "rows columns reduction ignore";

constexpr Row kRows[] = {
    {"matmul", "matmul", "products", kMatmul, "f f f?", "f b?"},
    {"matmul_grad", "matmul", "products", kMatmul, "f f", "s"},
    {"matmul_softmax_grad", "matmul", "products", kMatmul, "f f f", "f", true},
    {"matmul_unary_grad", "matmul_unary", "products", "b m k n ab am ak bb bk bn function scale.f p.f q.f", "f f f",
     "f"},
    {"conv2d", "conv2d", "convolutions", kConv, "f f f?", "f b?", true},
    {"conv2d_grad_input", "conv2d", "convolutions", kConv, "f f", "f", true},
    {"conv2d_grad_weight", "conv2d", "convolutions", kConv, "f f", "s", true},
    {"unary", "unary", "elementwise", kUnary, "f", "f"},
    {"unary_grad", "unary", "elementwise", kUnary, "f f", "f"},
    {"binary", "binary", "elementwise", "function d:4 s0:4 s1:4 scale.f", "f f", "f"},
    {"relu", "relu", "elementwise", "n", "f", "f b?"},
    {"relu_grad", "relu", "elementwise", "n", "f f", "f"},
    {"relu_grad_mask", "relu", "elementwise", "n", "f b", "f"},
    {"dropout", "dropout", "elementwise", "n keep site scale.f", "f u", "f"},
    {"copy", "copy", "copies", "d:6 s:6", "f", "f"},
    {"pad", "pad", "copies", "d:4 x:4 low:4", "f", "f"},
    {"cat", "cat", "copies", "outer width inner at", "f", "f", false, true},
    {"fill", "fill", "copies", "n value.f", "", "f"},
    {"sum", "sum", "copies", kSum, "f", "f"},
    {"sum_around", "sum", "copies", kSum, "f", "f"},
    {"sum_around_grad", "sum", "copies", kSum, "f", "s"},
    {"max_pool2d", "pool2d", "pooling", kPool, "f", "f 8?"},
    {"max_pool2d_grad", "pool2d", "pooling", kPool, "f 8", "f"},
    {"avg_pool2d", "pool2d", "pooling", kPool, "f", "f"},
    {"avg_pool2d_grad", "pool2d", "pooling", kPool, "f", "f"},
    {"norm", "norm", "normalization", kNorm, "f f? f?", "f f f"},
    {"norm_grad_input", "norm", "normalization", kNorm, "f f f f f?", "f"},
    {"norm_grad_weight", "norm", "normalization", kNorm, "f f f f", "s"},
    {"batch_norm", "batch_norm", "normalization", kBatchNorm, "f f? f?", "f f f"},
    {"batch_norm_eval", "batch_norm", "normalization", kBatchNorm, "f f? f? f f", "f"},
    {"batch_norm_grad_input", "batch_norm", "normalization", kBatchNorm, "f f f f f?", "f"},
    {"batch_norm_grad_weight", "batch_norm", "normalization", kBatchNorm, "f f f f", "s"},
    {"running", "running", "normalization", "channels momentum.f unbiased.f", "f f f f", ""},
    {"embedding", "embedding", "losses", "n rows columns padding", "f i", "f"},
    {"embedding_grad", "embedding", "losses", "n rows columns padding", "f i", "s"},
    {"softmax", "softmax", "losses", "rows columns", "f", "f"},
    {"softmax_grad", "softmax", "losses", "rows columns", "f f", "f"},
    {"log_softmax", "softmax", "losses", "rows columns", "f", "f"},
    {"log_softmax_grad", "softmax", "losses", "rows columns", "f f", "f"},
    {"nll_loss", "nll_loss", "losses", kNll, "f i", "f f"},
    {"nll_loss_grad", "nll_loss", "losses", kNll, "f i f", "f"},
    {"mse_loss", "loss", "losses", "n reduction", "f f", "f"},
    {"mse_loss_grad", "loss", "losses", "n reduction", "f f f", "f"},
    {"bce_loss", "loss", "losses", "n reduction", "f f", "f"},
    {"bce_loss_grad", "loss", "losses", "n reduction", "f f f", "f"},
    {"bce_logits_loss", "loss", "losses", "n reduction", "f f", "f"},
    // What the exporter adds: a stored gradient becomes an update.
    {"update", "update", "updates", "rows columns transposed", "f", "s"},
};

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

KernelField field_of(std::string_view word) {
  KernelField field;
  if (word.ends_with(".f")) {
    field.is_float = true;
    word.remove_suffix(2);
  }
  if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
    field.count = word[colon + 1] - '0';
    word = word.substr(0, colon);
  }
  field.name = word;
  return field;
}

std::vector<KernelTensor> tensors_of(std::string_view text) {
  using Type = StepBuffer::Type;
  std::vector<KernelTensor> result;
  for (const std::string_view word : words(text)) {
    const char letter = word[0];
    const Type type = letter == 'i'   ? Type::kInt
                      : letter == 'u' ? Type::kUnsigned
                      : letter == '8' ? Type::kByte
                      : letter == 'b' ? Type::kBits
                                      : Type::kFloat;
    result.push_back({type, word.ends_with('?'), letter == 's'});
  }
  return result;
}

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all = [] {
    std::vector<Kernel> made;
    for (const Row& row : kRows) {
      Kernel& kernel = made.emplace_back(Kernel{row.name,
                                                row.structure,
                                                row.file,
                                                {},
                                                tensors_of(row.inputs),
                                                tensors_of(row.results),
                                                row.workspace,
                                                row.by_input});
      for (const std::string_view word : words(row.fields)) kernel.fields.push_back(field_of(word));
    }
    return made;
  }();
  return all;
}

class CallCheck {
 public:
  CallCheck(const Step& step, size_t index) : step_(step), index_(index), call_(step.operators[index]) {}

  void run() const {
    const Kernel* kernel = find_kernel(call_.kernel);
    if (kernel == nullptr || kernel->name == "update")
      refuse("is for the kernel \"" + call_.kernel + "\", which there is not");
    if (kernel->by_input) {
      if (call_.inputs.empty()) refuse("has no inputs");
      for (const StepRead& read : call_.inputs) check_tensor(kernel->inputs[0], read.buffer, "an input");
    } else {
      if (call_.inputs.size() != kernel->inputs.size())
        refuse("has " + std::to_string(call_.inputs.size()) + " inputs, not " + std::to_string(kernel->inputs.size()));
      for (size_t i = 0; i < call_.inputs.size(); ++i)
        check_tensor(kernel->inputs[i], call_.inputs[i].buffer, "an input");
    }
    if (call_.results.size() != kernel->results.size())
      refuse("has " + std::to_string(call_.results.size()) + " results, not " + std::to_string(kernel->results.size()));
    for (size_t i = 0; i < call_.results.size(); ++i) check_tensor(kernel->results[i], call_.results[i], "a result");
    if (call_.arguments.size() != kernel->fields.size())
      refuse("has " + std::to_string(call_.arguments.size()) + " arguments, not " +
             std::to_string(kernel->fields.size()));
    for (const KernelField& field : kernel->fields) check_field(*kernel, field);
  }

 private:
  void check_tensor(const KernelTensor& tensor, int32_t buffer, const char* what) const {
    if (buffer < 0 && !tensor.optional) refuse(std::string("lacks ") + what);
    if (buffer >= 0 && step_.buffers[buffer].type != tensor.type)
      refuse(std::string("has ") + what + " of another type than the kernel's");
  }
  void check_field(const Kernel& kernel, const KernelField& field) const {
    const auto found = std::ranges::find(call_.arguments, field.name, &StepArgument::name);
    if (found == call_.arguments.end()) refuse("lacks the argument " + std::string(field.name));
    const bool listed = kernel.by_input && (field.name == "inner" || field.name == "at");
    const size_t count = listed ? call_.inputs.size() : static_cast<size_t>(field.count);
    if (found->numbers.size() != count) refuse("has not " + std::to_string(count) + " numbers in " + found->name);
    for (const double number : found->numbers) {
      constexpr double most_int = 2147483647, most_unsigned = 4294967295;
      if (field.is_float ? std::abs(number) > 3.4028234e38
                         : std::abs(number) > (field.name == "keep" ? most_unsigned : most_int))
        refuse("has a number in " + found->name + " that is too large");
      if (field.name == "keep" && number < 0) refuse("has a negative number in keep");
      if (!field.is_float && number != std::floor(number)) refuse("has a fraction in " + found->name);
    }
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("[step] operators[" + std::to_string(index_) + "] " + what +
                "; docs/formats.md says what belongs there");
  }

  const Step& step_;
  const size_t index_;
  const StepOperator& call_;
};

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  const auto found = std::ranges::find(kernels(), name, &Kernel::name);
  return found == kernels().end() ? nullptr : &*found;
}

void check_call(const Step& step, size_t index) { CallCheck(step, index).run(); }

}  // namespace remat::exporting
