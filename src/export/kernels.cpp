#include "export/kernels.h"

#include <algorithm>
#include <cmath>

#include <remat/error.h>

#include <remat/support/number_text.h>

namespace remat::exporting {
namespace {

// Fields: sizes, which are 1 or more; "+name" from 0 on, "?name" 0 or 1, "~name" any int, "^name" any unsigned number;
// "name:4" is a list, "name.f" a float. Tensors: f, i, u, 8 (bytes), b (bits), s (a gradient); with "?" it may be
// absent, with "=" the result may lie over it; in brackets how many elements are read or made, as in call_sizes.h.
struct Row {
  std::string_view name, structure, file, fields, inputs, results;
  bool workspace = false, by_input = false;
};

constexpr std::string_view kMatmul = "b m k n +ab +am +ak +bb +bk +bn ?relu scale.f";
constexpr std::string_view kMatmulUnary = "b m k n +ab +am +ak +bb +bk +bn +function scale.f p.f q.f";
constexpr std::string_view kFactors = "f(b:ab,m:am,k:ak) f(b:bb,k:bk,n:bn)";
constexpr std::string_view kFactorsBias = "f(b:ab,m:am,k:ak) f(b:bb,k:bk,n:bn) f?(n)";
constexpr std::string_view kFactorsOther = "f(b:ab,m:am,k:ak) f(b:bb,k:bk,n:bn) f=(b*m*n)";
constexpr std::string_view kConv = "n c h w o kh kw sh sw +ph +pw dh dw g oh ow ?relu";
constexpr std::string_view kPool = "planes h w oh ow kh kw sh sw +ph +pw ?count_pad";
constexpr std::string_view kPlanes = "f(planes*h*w)", kWindows = "f(planes*oh*ow)";
constexpr std::string_view kSum = "outer middle inner scale.f", kSummed = "f(outer*middle*inner)";
constexpr std::string_view kNorm = "rows groups channels inner eps.f";
constexpr std::string_view kBatchNorm = "n channels inner ?train eps.f";
constexpr std::string_view kUnary = "n +function p.f q.f";
constexpr std::string_view kEmbedding = "n rows columns ~padding";
constexpr std::string_view kRows = "rows columns", kCells = "f=(rows*columns)",
                           kTwoCells = "f=(rows*columns) f=(rows*columns)";
constexpr std::string_view kNll = "rows columns +reduction ~ignore";
constexpr std::string_view kLoss = "n +reduction", kLossOf = "f(n) f(n)", kLossGradOf = "f(n|reduction) f=(n) f(n)";
constexpr std::string_view kHuber = "n +reduction delta.f scale.f";

constexpr Row kTable[] = {
    {"matmul", "matmul", "products", kMatmul, kFactorsBias, "f(b*m*n) b?(b*m*n)"},
    {"matmul_grad", "matmul", "products", kMatmul, kFactors, "s(m*n)"},
    {"matmul_softmax_grad", "matmul", "products", kMatmul, kFactorsOther, "f(b*m*n)", true},
    {"matmul_unary_grad", "matmul_unary", "products", kMatmulUnary, kFactorsOther, "f(b*m*n)"},
    {"conv2d", "conv2d", "convolutions", kConv, "f=(n*c*h*w) f(o*c/g*kh*kw) f?(o)", "f(n*o*oh*ow) b?(n*o*oh*ow)", true},
    {"conv2d_grad_input", "conv2d", "convolutions", kConv, "f=(n*o*oh*ow) f(o*c/g*kh*kw)", "f(n*c*h*w)", true},
    {"conv2d_grad_weight", "conv2d", "convolutions", kConv, "f=(n*c*h*w) f(n*o*oh*ow)", "s(o*c/g*kh*kw)", true},
    {"unary", "unary", "elementwise", kUnary, "f=(n)", "f(n)"},
    {"unary_grad", "unary", "elementwise", kUnary, "f=(n) f=(n)", "f(n)"},
    {"binary", "binary", "elementwise", "+function d:4 +s0:4 +s1:4 scale.f", "f=(d:s0) f=(d:s1)", "f(d)"},
    {"where", "where", "elementwise", "d:4 +sc:4 +s0:4 +s1:4", "f=(d:sc) f=(d:s0) f=(d:s1)", "f(d)"},
    {"relu", "relu", "elementwise", "n", "f=(n)", "f(n) b?(n)"},
    {"relu_grad", "relu", "elementwise", "n", "f=(n) f=(n)", "f(n)"},
    {"relu_grad_mask", "relu", "elementwise", "n", "f=(n) b(n)", "f(n)"},
    {"dropout", "dropout", "elementwise", "n ^keep +site scale.f", "f=(n) u(2)", "f(n)"},
    {"copy", "copy", "copies", "d:6 ~s:6", "f(d:s)", "f(d)"},
    {"pad", "pad", "copies", "d:4 x:4 +low:4", "f(x)", "f(d)"},
    {"cat", "cat", "copies", "outer width inner +at", "f(outer*inner)", "f(outer*width)", false, true},
    {"fill", "fill", "copies", "n value.f", "", "f(n)"},
    {"to_float", "convert", "copies", "n", "i(n)", "f(n)"},
    {"to_int", "convert", "copies", "n", "f(n)", "i(n)"},
    {"sum", "sum", "copies", kSum, kSummed, "f(outer*inner)"},
    {"sum_around", "sum", "copies", kSum, kSummed, "f(middle)"},
    {"sum_around_grad", "sum", "copies", kSum, kSummed, "s(middle)"},
    {"max_pool2d", "pool2d", "pooling", kPool, kPlanes, "f(planes*oh*ow) 8?(planes*oh*ow)"},
    {"max_pool2d_grad", "pool2d", "pooling", kPool, "f(planes*oh*ow) 8(planes*oh*ow)", kPlanes},
    {"avg_pool2d", "pool2d", "pooling", kPool, kPlanes, kWindows},
    {"avg_pool2d_grad", "pool2d", "pooling", kPool, kWindows, kPlanes},
    {"norm", "norm", "normalization", kNorm, "f=(rows*channels*inner) f?(groups*channels) f?(groups*channels)",
     "f(rows*channels*inner) f(rows) f(rows)"},
    {"norm_grad_input", "norm", "normalization", kNorm,
     "f=(rows*channels*inner) f=(rows*channels*inner) f(rows) f(rows) f?(groups*channels)", "f(rows*channels*inner)"},
    {"norm_grad_weight", "norm", "normalization", kNorm,
     "f(rows*channels*inner) f(rows*channels*inner) f(rows) f(rows)", "s(groups*channels)"},
    {"batch_norm", "batch_norm", "normalization", kBatchNorm, "f=(n*channels*inner) f?(channels) f?(channels)",
     "f(n*channels*inner) f(channels) f(channels)"},
    {"batch_norm_eval", "batch_norm", "normalization", kBatchNorm,
     "f=(n*channels*inner) f?(channels) f?(channels) f(channels) f(channels)", "f(n*channels*inner)"},
    {"batch_norm_grad_input", "batch_norm", "normalization", kBatchNorm,
     "f=(n*channels*inner) f=(n*channels*inner) f(channels) f(channels) f?(channels)", "f(n*channels*inner)"},
    {"batch_norm_grad_weight", "batch_norm", "normalization", kBatchNorm,
     "f(n*channels*inner) f(n*channels*inner) f(channels) f(channels)", "s(channels)"},
    {"running", "running", "normalization", "channels momentum.f unbiased.f",
     "f(channels) f(channels) f(channels) f(channels)", ""},
    {"embedding", "embedding", "losses", kEmbedding, "f(rows*columns) i(n)", "f(n*columns)"},
    {"embedding_grad", "embedding", "losses", kEmbedding, "f(n*columns) i(n)", "s(rows*columns)"},
    {"softmax", "softmax", "losses", kRows, kCells, "f(rows*columns)"},
    {"softmax_grad", "softmax", "losses", kRows, kTwoCells, "f(rows*columns)"},
    {"log_softmax", "softmax", "losses", kRows, kCells, "f(rows*columns)"},
    {"log_softmax_grad", "softmax", "losses", kRows, kTwoCells, "f(rows*columns)"},
    {"nll_loss", "nll_loss", "losses", kNll, "f(rows*columns) i(rows) f?(columns)", "f(rows|reduction) f(1)"},
    {"nll_loss_grad", "nll_loss", "losses", kNll, "f(rows|reduction) i(rows) f?(columns) f(1)", "f(rows*columns)"},
    {"mse_loss", "loss", "losses", kLoss, kLossOf, "f(n|reduction)"},
    {"mse_loss_grad", "loss", "losses", kLoss, kLossGradOf, "f(n)"},
    {"bce_loss", "loss", "losses", kLoss, kLossOf, "f(n|reduction)"},
    {"bce_loss_grad", "loss", "losses", kLoss, kLossGradOf, "f(n)"},
    {"bce_logits_loss", "loss", "losses", kLoss, kLossOf, "f(n|reduction)"},
    {"huber_loss", "huber_loss", "losses", kHuber, kLossOf, "f(n|reduction)"},
    {"huber_loss_grad", "huber_loss", "losses", kHuber, kLossGradOf, "f(n)"},
    // What the exporter adds: a stored gradient becomes an update.
    {"update", "update", "updates", "rows columns ?transposed", "f(rows*columns)", "s(rows*columns)"},
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
  const char kind = word[0];
  if (kind == '+' || kind == '?' || kind == '~' || kind == '^') word.remove_prefix(1);
  if (kind == '+') field.least = 0;
  if (kind == '?') field.least = 0, field.most = 1;
  if (kind == '~') field.least = -2147483648.0, field.most = 2147483647;
  if (kind == '^') field.least = 0, field.most = 4294967295;
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
    const size_t open = std::min(word.find('('), word.size()), close = std::min(word.find(')'), word.size());
    const std::string_view marks = word.substr(0, open);
    result.push_back({type, marks.ends_with('?'), letter == 's', marks.ends_with('='),
                      open < close ? word.substr(open + 1, close - open - 1) : std::string_view()});
  }
  return result;
}

std::vector<Kernel> read_table() {
  std::vector<Kernel> made;
  for (const Row& row : kTable) {
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
      if (std::abs(number) > (field.is_float ? 3.4028234e38 : field.most))
        refuse("has a number in " + found->name + " that is too large");
      if (!field.is_float && number < field.least)
        refuse("has " + support::short_text(number) + " in " + found->name + ", and not " +
               support::short_text(field.least) + " or more");
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

const std::vector<Kernel>& all_kernels() {
  static const std::vector<Kernel> kernels = read_table();
  return kernels;
}

const Kernel* find_kernel(std::string_view name) {
  const auto found = std::ranges::find(all_kernels(), name, &Kernel::name);
  return found == all_kernels().end() ? nullptr : &*found;
}

void check_call(const Step& step, size_t index) { CallCheck(step, index).run(); }

}  // namespace remat::exporting
