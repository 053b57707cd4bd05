#include "export/call_sizes.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include <remat/error.h>

#include <remat/support/number_text.h>

namespace remat::exporting {
namespace {

/// The names and operators of "n*c/g", one after the other.
std::vector<std::string_view> tokens(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const size_t end = std::max<size_t>(std::min(text.find_first_of(separators), text.size()), 1);
    found.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return found;
}

class Sizes {
 public:
  Sizes(const Kernel& kernel, const StepOperator& call, size_t input) : kernel_(kernel), call_(call), input_(input) {}

  double of(std::string_view text) const {
    if (text.empty()) return -1;
    if (const size_t bar = text.find('|'); bar != std::string_view::npos)
      return call_.argument(text.substr(bar + 1)) == 0 ? product(text.substr(0, bar)) : 1;
    return text.find(':') == std::string_view::npos ? product(text) : ends(text).second + 1;
  }

  /// Elements before the first one of a tensor, where a stride is negative: -3 for three of them.
  double first(std::string_view text) const { return text.find(':') == std::string_view::npos ? 0 : ends(text).first; }

  /// "n*c = 2*3", for messages.
  std::string explain(std::string_view text) const {
    std::string numbers;
    for (const std::string_view token : tokens(text, "*/:,|")) {
      const std::vector<double>* list = find(token);
      if (list == nullptr) {
        numbers += token;
      } else if (list->size() == 1 || listed(token)) {
        numbers += whole((*list)[listed(token) ? input_ : 0]);
      } else {
        for (size_t i = 0; i < list->size(); ++i) numbers += (i == 0 ? "[" : " ") + whole((*list)[i]);
        numbers += "]";
      }
    }
    return std::string(text) == numbers ? numbers : std::string(text) + " = " + numbers;
  }

  static std::string whole(double number) { return support::short_text(number, 17); }

 private:
  /// nullptr: it is no argument.
  const std::vector<double>* find(std::string_view name) const {
    const auto found = std::ranges::find(call_.arguments, name, &StepArgument::name);
    return found == call_.arguments.end() ? nullptr : &found->numbers;
  }
  /// Whether an argument has a number for each input.
  bool listed(std::string_view name) const { return kernel_.by_input && (name == "inner" || name == "at"); }

  double factor(std::string_view name) const {
    const std::vector<double>* list = find(name);
    if (list == nullptr) {
      double number = -1;
      std::from_chars(name.data(), name.data() + name.size(), number);
      return number;
    }
    if (listed(name)) return input_ < list->size() ? (*list)[input_] : -1;
    double result = 1;
    for (const double number : *list) result *= number;
    return result;
  }
  double product(std::string_view text) const {
    double result = 1;
    bool divide = false;
    for (const std::string_view token : tokens(text, "*/")) {
      if (token == "*" || token == "/") {
        divide = token == "/";
      } else {
        result = divide ? result / factor(token) : result * factor(token);
        divide = false;
      }
    }
    return result;
  }
  /// The lowest and the highest element of a tensor with sizes and strides.
  std::pair<double, double> ends(std::string_view text) const {
    std::pair<double, double> found{0, 0};
    std::string_view size;
    for (const std::string_view token : tokens(text, ":,")) {
      if (token == ":" || token == ",") continue;
      if (size.empty()) {
        size = token;
        continue;
      }
      const std::vector<double>*sizes = find(size), *strides = find(token);
      if (sizes == nullptr || strides == nullptr || sizes->size() != strides->size()) return {0, -2};
      for (size_t i = 0; i < sizes->size(); ++i) {
        const double last = ((*sizes)[i] - 1) * (*strides)[i];
        (last < 0 ? found.first : found.second) += last;
      }
      size = {};
    }
    return found;
  }

  const Kernel& kernel_;
  const StepOperator& call_;
  const size_t input_;
};

class SizeCheck {
 public:
  SizeCheck(const Step& step, size_t index)
      : step_(step), index_(index), call_(step.operators[index]), kernel_(*find_kernel(call_.kernel)) {}

  void run() const {
    if (kernel_.structure == "conv2d") check_convolution();
    if (kernel_.structure == "pool2d") check_pooling();
    if (kernel_.name == "pad") check_pad();
    if (kernel_.name == "cat") check_cat();
    check_choices();
    for (size_t i = 0; i < call_.inputs.size(); ++i) check_input(i);
    for (size_t r = 0; r < call_.results.size(); ++r) check_result(r);
    check_workspace();
    check_in_place();
    check_contents();
  }

 private:
  double of(std::string_view name, size_t index = 0) const { return call_.argument(name, index); }
  static std::string text(double number) { return Sizes::whole(number); }
  std::string buffer_text(int32_t buffer) const {
    const StepBuffer& b = step_.buffers[buffer];
    return "buffers[" + std::to_string(buffer) + "]" + (b.name.empty() ? "" : " (\"" + b.name + "\")") + " has " +
           std::to_string(b.elements);
  }

  void check_input(size_t i) const {
    const StepRead& read = call_.inputs[i];
    if (read.buffer < 0) return;
    const std::string_view elements = kernel_.inputs[kernel_.by_input ? 0 : i].elements;
    const Sizes sizes(kernel_, call_, i);
    const double count = sizes.of(elements);
    if (count >= 1 &&
        static_cast<double>(read.offset) + count <= static_cast<double>(step_.buffers[read.buffer].elements))
      return;
    refuse("reads " + sizes.explain(elements) + ", " + text(count) + " elements, as input " + std::to_string(i) +
           " from element " + std::to_string(read.offset) + " on, and " + buffer_text(read.buffer));
  }

  void check_result(size_t r) const {
    const int32_t buffer = call_.results[r];
    if (buffer < 0) return;
    const std::string_view elements = kernel_.results[r].elements;
    const Sizes sizes(kernel_, call_, 0);
    const double count = sizes.of(elements);
    if (count == static_cast<double>(step_.buffers[buffer].elements)) return;
    refuse("makes " + sizes.explain(elements) + ", " + text(count) + " elements, as result " + std::to_string(r) +
           ", and " + buffer_text(buffer));
  }

  bool is_1x1() const {
    return of("kh") == 1 && of("kw") == 1 && of("sh") == 1 && of("sw") == 1 && of("ph") == 0 && of("pw") == 0 &&
           of("g") == 1;
  }
  bool is_depthwise() const {
    return of("g") == of("c") && of("o") == of("c") && of("g") > 1 && of("sh") == 1 && of("sw") == 1 && of("dh") == 1 &&
           of("dw") == 1 && of("ph") < of("kh") && of("pw") < of("kw");
  }

  /// How many windows there are: (size + 2 padding - what one covers) / stride + 1.
  void check_windows(const char* made, const char* size, const char* kernel, const char* stride, const char* padding,
                     double dilation) const {
    const auto free = static_cast<int64_t>(of(size) + 2 * of(padding) - dilation * (of(kernel) - 1) - 1);
    const int64_t count = free < 0 ? 0 : free / static_cast<int64_t>(of(stride)) + 1;
    if (of(made) == static_cast<double>(count)) return;
    refuse("has " + text(of(made)) + " in " + made + "; " + size + " " + text(of(size)) + ", " + kernel + " " +
           text(of(kernel)) + ", " + stride + " " + text(of(stride)) + ", " + padding + " " + text(of(padding)) +
           " give " + std::to_string(count));
  }
  void check_convolution() const {
    for (const char* channels : {"c", "o"}) {
      if (static_cast<int64_t>(of(channels)) % static_cast<int64_t>(of("g")) != 0)
        refuse("has " + text(of(channels)) + " in " + channels + ", which g, " + text(of("g")) + ", does not divide");
    }
    check_windows("oh", "h", "kh", "sh", "ph", of("dh"));
    check_windows("ow", "w", "kw", "sw", "pw", of("dw"));
  }
  /// Each window meets the plane, and an index is a byte.
  void check_pooling() const {
    check_windows("oh", "h", "kh", "sh", "ph", 1);
    check_windows("ow", "w", "kw", "sw", "pw", 1);
    if (2 * of("ph") > of("kh") || 2 * of("pw") > of("kw")) refuse("has a padding of more than half the window");
    if (kernel_.name.starts_with("max") && of("kh") * of("kw") > 256) refuse("has a window of more than 256 elements");
    if (kernel_.name != "max_pool2d_grad") return;
    const int32_t indices = call_.inputs[1].buffer;
    const auto makes = [&](const StepOperator& op) {
      return std::ranges::find(op.results, indices) != op.results.end();
    };
    const auto made = std::ranges::find_if(step_.operators, makes);
    const auto same = [&](const KernelField& f) { return made->argument(f.name) == of(f.name); };
    if (made == step_.operators.end() || made->kernel != "max_pool2d" || !std::ranges::all_of(kernel_.fields, same))
      refuse("has other sizes than the max_pool2d that made its indices");
  }
  void check_pad() const {
    for (size_t i = 0; i < 4; ++i) {
      if (of("low", i) + of("x", i) > of("d", i))
        refuse("puts " + text(of("x", i)) + " from " + text(of("low", i)) + " on into " + text(of("d", i)) +
               ", in dimension " + std::to_string(i));
    }
  }
  void check_cat() const {
    double end = 0;
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (of("at", i) != end)
        refuse("has " + text(of("at", i)) + " in at for input " + std::to_string(i) + ", and not " + text(end));
      end += of("inner", i);
    }
    if (end != of("width")) refuse("has a width of " + text(of("width")) + ", and inner adds up to " + text(end));
  }

  /// Numbers that stand for one of several things.
  void check_choices() const {
    const auto most = [&](const char* name, double largest) {
      if (of(name) > largest)
        refuse("has " + text(of(name)) + " in " + name + ", of which " + text(largest) + " is the last");
    };
    most("reduction", 2);
    if (kernel_.name == "binary") most("function", 6);
    if (kernel_.structure.find("unary") != std::string_view::npos) {
      most("function", kLastUnary);
      const auto function = static_cast<int>(of("function"));
      if (kernel_.name.ends_with("_grad") && std::ranges::find(kWithSlope, function) == std::end(kWithSlope))
        refuse("has " + std::to_string(function) + " in function, which has no gradient");
      if (function == kPower && (of("p") > 8 || of("p") < -8)) refuse("has an exponent that is not between -8 and 8");
    }
    const bool masks =
        call_.results.size() > 1 && call_.results[1] >= 0 && kernel_.results[1].type == StepBuffer::Type::kBits;
    if (masks && kernel_.name != "relu" && of("relu") == 0) refuse("makes a mask without relu");
  }

  void check_workspace() const {
    double floats = 0;
    const bool over = !call_.in_place.empty();
    if (kernel_.name == "matmul_softmax_grad") floats = 4 * of("n");
    if (kernel_.structure == "conv2d") {
      const bool input = kernel_.name == "conv2d_grad_input", weight = kernel_.name == "conv2d_grad_weight";
      if (is_depthwise())
        floats = input ? (of("h") + of("kh") - 1) * (of("w") + of("kw") - 1)
                       : (of("h") + 2 * of("ph")) * (of("w") + 2 * of("pw"));
      else if (is_1x1() && (over || weight))
        floats = 4 * (input || weight ? of("o") : of("c"));
    }
    if (static_cast<double>(call_.workspace) < 4 * floats)
      refuse("needs a workspace of " + text(4 * floats) + " bytes, and has " + std::to_string(call_.workspace));
  }

  void check_in_place() const {
    for (const auto& [input, result] : call_.in_place) {
      bool can = !kernel_.by_input && kernel_.inputs[input].in_place && call_.inputs[input].offset == 0 && result == 0;
      if (kernel_.name == "conv2d_grad_weight") {
        can = can && is_1x1() && of("h") * of("w") >= of("o");
      } else if (kernel_.structure == "conv2d") {
        can = can && (is_1x1() || is_depthwise()) && of("c") == of("o") && of("h") == of("oh") && of("w") == of("ow");
      } else if (kernel_.name == "binary") {
        double stride = 1;
        for (size_t i = 4; i-- > 0; stride *= of("d", i))
          can = can && (of("d", i) == 1 || of(input == 0 ? "s0" : "s1", i) == stride);
      }
      if (!can) refuse("cannot have its result in place of input " + std::to_string(input));
    }
  }

  /// Constants that are indices; what a kernel writes besides results.
  void check_contents() const {
    if (kernel_.name == "running") {
      for (const size_t i : {2, 3}) {
        if (step_.buffers[call_.inputs[i].buffer].kind != StepBuffer::Kind::kState)
          refuse("writes to input " + std::to_string(i) + ", which is no state");
      }
    }
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const StepRead& read = call_.inputs[i];
      if (kernel_.by_input || read.buffer < 0 || kernel_.inputs[i].type != StepBuffer::Type::kInt) continue;
      const std::vector<double>& values = step_.buffers[read.buffer].values;
      const bool loss = kernel_.structure == "nll_loss";
      const double rows = of(loss ? "columns" : "rows");
      for (const double value : values) {
        if (value >= 0 && value < rows) continue;
        if (!loss || value != of("ignore"))
          refuse("has an index " + text(value) + " in " + buffer_text(read.buffer) + ", of " + text(rows));
      }
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("[step] operators[" + std::to_string(index_) + "], " + call_.kernel + ", " + what +
                "; docs/formats.md says what belongs there");
  }

  static constexpr int kLastUnary = 24, kPower = 21;
  static constexpr int kWithSlope[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 22, 23, 24};

  const Step& step_;
  const size_t index_;
  const StepOperator& call_;
  const Kernel& kernel_;
};

}  // namespace

double elements_of(const Kernel& kernel, const StepOperator& call, std::string_view text, size_t input) {
  return Sizes(kernel, call, input).of(text);
}

void check_sizes(const Step& step, size_t index) { SizeCheck(step, index).run(); }

}  // namespace remat::exporting
