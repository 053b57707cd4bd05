#include "export/costs.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "export/cost_table.h"

namespace remat::exporting {
namespace {

/// Counts of one call, by row of the table.
class Counter {
 public:
  Counter(const StepOperator& op, std::string_view rule) : op_(op), rule_(rule) {}

  Work run() {
    add("call", 1);
    const std::string& k = op_.kernel;
    if (k.starts_with("matmul")) {
      const double batch = of("b");
      const bool gradient = k == "matmul_grad";
      product(of("m"), of("n"), gradient ? of("k") * batch : of("k"), gradient ? 1 : batch);
      gradient ? put(of("m") * of("n")) : results(batch * of("m") * of("n"));
      if (k == "matmul_unary_grad") {
        add("unary_grad." + std::to_string(static_cast<int>(of("function"))), batch * of("m") * of("n"));
      }
      if (k == "matmul_softmax_grad") add("softmax_grad.element", batch * of("m") * of("n"));
    } else if (k.starts_with("conv2d")) {
      convolution();
    } else if (k.ends_with("pool2d") || k.ends_with("pool2d_grad")) {
      const double windows = of("planes") * of("oh") * of("ow");
      add(k + ".window", windows);
      add(k + ".place", windows * of("kh") * of("kw"));
      add(k + ".element", of("planes") * of("h") * of("w"));
    } else if (k.starts_with("unary")) {
      add(k + "." + std::to_string(static_cast<int>(of("function"))), of("n"));
    } else if (k == "binary" || k == "where") {
      add(k + ".row", of("d") * at("d", 1) * at("d", 2));
      add(k + ".element", of("d") * at("d", 1) * at("d", 2) * at("d", 3));
    } else if (k == "copy" || k == "pad") {
      double rows = 1;
      const size_t last = k == "copy" ? 5 : 3;
      for (size_t i = 0; i < last; ++i) rows *= at("d", i);
      add(k + ".row", rows);
      add(k + ".element", rows * at("d", last));
    } else if (k == "cat") {
      for (size_t i = 0; i < op_.inputs.size(); ++i) {
        add("cat.row", of("outer"));
        add("cat.element", of("outer") * at("inner", i));
      }
    } else if (k.starts_with("sum")) {
      const bool around = k != "sum";
      add(around ? "sum_around.sum" : "sum.sum", around ? of("middle") * of("outer") : of("outer") * of("inner"));
      add(around ? "sum_around.element" : "sum.element", of("outer") * of("middle") * of("inner"));
      if (k == "sum_around_grad") put(of("middle"));
    } else if (k.starts_with("norm") || k.starts_with("batch_norm")) {
      const bool batch = k.starts_with("batch");
      const double rows = batch ? of("n") * of("channels") : of("rows");
      add(k + ".row", rows);
      if (!batch) add(k + ".channel", rows * of("channels"));
      add(k + ".element", rows * (batch ? 1 : of("channels")) * of("inner"));
      if (k.ends_with("weight")) put(of("channels") * std::max(of("groups"), 1.0));
    } else if (k.starts_with("embedding")) {
      add(k + ".element", k == "embedding" ? of("n") * of("columns") : of("rows") * of("columns") * of("n"));
      if (k == "embedding_grad") put(of("rows") * of("columns"));
    } else if (k == "update") {
      put(of("rows") * of("columns"));
    } else if (op_.arguments.size() >= 2 && k.find("softmax") != std::string::npos) {
      add(k + ".row", of("rows"));
      add(k + ".element", of("rows") * of("columns"));
    } else if (k.starts_with("nll")) {
      add(k + ".element", of("rows") * of("columns"));
    } else {
      add(k + ".element", std::max(of("n"), of("channels")));
      mask(of("n"));
    }
    return std::move(work_);
  }

 private:
  double of(std::string_view name) const { return op_.argument(name); }
  double at(std::string_view name, size_t index) const { return op_.argument(name, index); }
  void add(std::string row, double count) {
    if (count > 0) work_.emplace_back(std::move(row), count);
  }
  void mask(double count) {
    if (op_.results.size() > 1 && op_.results[1] >= 0) add("mask", count);
  }
  void results(double count) {
    add("result", count);
    mask(count);
  }
  void put(double count) { add("put." + std::string(rule_), count); }

  /// remat_tile() over m x n sums of k products.
  void product(double m, double n, double k, double batch) {
    const double m4 = std::floor(m / 4), n4 = std::floor(n / 4), m1 = m - 4 * m4, n1 = n - 4 * n4;
    add("tile.k", batch * m4 * n4 * k);
    add("tile.tile", batch * std::ceil(m / 4) * std::ceil(n / 4));
    add("row4.k", batch * (m4 * n1 + n4 * m1) * k);
    add("row4.row", batch * (m4 * n1 + n4 * m1));
    add("single.k", batch * m1 * n1 * k);
  }

  void convolution() {
    const bool forward = op_.kernel == "conv2d", input = op_.kernel == "conv2d_grad_input";
    const double n = of("n"), c = of("c"), o = of("o"), pixels = of("h") * of("w"), made = of("oh") * of("ow");
    const bool plain = of("sh") == 1 && of("sw") == 1;
    if (plain && of("kh") == 1 && of("kw") == 1 && of("ph") == 0 && of("pw") == 0 && of("g") == 1) {
      if (forward || input) {
        product(forward ? o : c, pixels, forward ? c : o, n);
        if (op_.in_place.size() == 1) add("pixels.copy", n * pixels * (forward ? c : o));
      } else {
        product(o, c, n * pixels, 1);
      }
      if (input) add("result.input", n * c * pixels);
    } else if (plain && of("dh") == 1 && of("dw") == 1 && of("g") == c && o == c && of("g") > 1 &&
               of("ph") < of("kh") && of("pw") < of("kw")) {
      depthwise(forward, input);
    } else {
      dense(forward, input);
    }
    if (forward) results(n * o * made);
    if (!forward && !input) put(o * c / of("g") * of("kh") * of("kw"));
  }

  void depthwise(bool forward, bool input) {
    const double planes = of("n") * of("c"), kh = of("kh"), kw = of("kw");
    const double padded = forward || !input ? (of("h") + 2 * of("ph")) * (of("w") + 2 * of("pw"))
                                            : (of("h") + kh - 1) * (of("w") + kw - 1);
    if (forward || input) {
      const double rows = forward ? of("oh") : of("h"), columns = forward ? of("ow") : of("w");
      const double fours = std::floor(rows / 4), ones = rows - 4 * fours;
      add("plane.copy", planes * padded);
      add("column4.k", planes * columns * fours * kh * kw);
      add("column4.row", planes * columns * fours * kh);
      add("column4.column", planes * columns * std::ceil(rows / 4));
      add("column1.k", planes * columns * ones * kh * kw);
      if (input) add("result.input", planes * rows * columns);
      return;
    }
    const double threes = std::floor(kw / 3), rest = kw - 3 * threes, copies = of("n") > 1 ? kh * std::ceil(kw / 3) : 1;
    add("plane.copy", planes * padded * copies);
    add("taps3.k", planes * kh * threes * of("oh") * of("ow"));
    add("taps3.row", planes * kh * threes * of("oh"));
    if (rest > 0) {
      add("taps2.k", planes * kh * of("oh") * of("ow"));
      add("taps2.row", planes * kh * of("oh"));
    }
  }

  /// Places of a kernel that meet the image, summed over results.
  static double meeting(double size, double made, double kernel, double stride, double padding, double dilation) {
    double sum = 0;
    for (double i = 0; i < made; ++i)
      for (double k = 0; k < kernel; ++k) {
        const double place = i * stride - padding + k * dilation;
        if (place >= 0 && place < size) ++sum;
      }
    return sum;
  }

  void dense(bool forward, bool input) {
    const double n = of("n"), g = of("g"), cg = of("c") / g, og = of("o") / g;
    const double rows = meeting(of("h"), of("oh"), of("kh"), of("sh"), of("ph"), of("dh"));
    const double columns = meeting(of("w"), of("ow"), of("kw"), of("sw"), of("pw"), of("dw"));
    if (forward) {
      const double fours = std::floor(og / 4), ones = og - 4 * fours, blocks = n * g * (fours + (ones > 0 ? 1 : 0));
      add("dense.pixel", blocks * of("oh") * of("ow"));
      add("dense.row", blocks * cg * rows * of("ow"));
      add("dots4.k", n * g * fours * cg * rows * columns);
      add("dots1.k", n * g * ones * cg * rows * columns);
      add("dots1.row", n * g * ones * cg * rows * of("ow"));
    } else if (input) {
      const double fours = std::floor(cg / 4), ones = cg - 4 * fours, blocks = n * g * (fours + (ones > 0 ? 1 : 0));
      const double pixels = of("h") * of("w");
      add("dense_input.pixel", blocks * pixels);
      add("dense_input.row", blocks * pixels * og * of("kh"));
      add("dense_input.place", blocks * og * rows * of("w") * of("kw"));
      add("dense_input.four", n * g * fours * og * rows * columns);
      add("dense_input.one", n * g * ones * og * rows * columns);
    } else {
      const double fours = std::floor(og / 4), ones = og - 4 * fours, blocks = g * (fours + (ones > 0 ? 1 : 0));
      add("dense_weight.row", blocks * cg * of("kw") * n * rows);
      add("dots4.k", g * fours * cg * n * rows * columns);
      add("dots1.k", g * ones * cg * n * rows * columns);
      add("dots1.row", g * ones * cg * of("kw") * n * rows);
    }
  }

  const StepOperator& op_;
  const std::string_view rule_;
  Work work_;
};

}  // namespace

Work work_of(const StepOperator& op, std::string_view rule) { return Counter(op, rule).run(); }

double instructions_of(const Work& work) {
  static const std::unordered_map<std::string_view, double> table(std::begin(kCostTable), std::end(kCostTable));
  double sum = 0;
  for (const auto& [row, count] : work) {
    const auto found = table.find(row);
    sum += count * (found == table.end() ? kUnmeasured : found->second);
  }
  return sum;
}

double instructions_of(const StepOperator& op, std::string_view rule) { return instructions_of(work_of(op, rule)); }

}  // namespace remat::exporting
