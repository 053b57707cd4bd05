#include "util/compute_bound.h"

#include <algorithm>
#include <array>

namespace remat {
namespace {

constexpr std::array<std::string_view, 15> kProducts = {
    "mm",         "bmm", "addmm", "baddbmm", "addbmm", "linear", "mkldnn_linear", "matmul", "_addmm_activation",
    "_trilinear", "mv",  "addmv", "dot",     "vdot",   "_int_mm"};

constexpr std::array<std::string_view, 3> kRecurrent = {"mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn"};

/// "aten::mm.out" is "mm".
std::string_view base_of(std::string_view name) {
  if (const size_t colons = name.find("::"); colons != std::string_view::npos) name.remove_prefix(colons + 2);
  return name.substr(0, name.find('.'));
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

bool is_product(std::string_view name) {
  return std::find(kProducts.begin(), kProducts.end(), base_of(name)) != kProducts.end();
}

bool is_convolution(std::string_view name) {
  const std::string_view base = base_of(name);
  return contains(base, "convolution") || base.starts_with("conv1d") || base.starts_with("conv2d") ||
         base.starts_with("conv3d");
}

bool is_attention(std::string_view name) {
  const std::string_view base = base_of(name);
  return contains(base, "scaled_dot_product") || contains(base, "_attention_forward");
}

bool is_recurrent(std::string_view name) {
  return std::find(kRecurrent.begin(), kRecurrent.end(), base_of(name)) != kRecurrent.end();
}

bool is_compute_bound(std::string_view name) {
  return is_product(name) || is_convolution(name) || is_attention(name) || is_recurrent(name);
}

}  // namespace remat
