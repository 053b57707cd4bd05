// src/operators/composites.h -- what PyTorch's composite operators are made of: they are never recorded, their parts
// are.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace remat {

struct Composite {
  std::string_view name;   ///< without overload
  std::string_view parts;  ///< those that matter, on the CPU and with usual arguments: "aten::mm, aten::addmm"
};

inline constexpr std::array kComposites = std::to_array<Composite>({
    {"aten::adaptive_avg_pool1d", "aten::_adaptive_avg_pool2d"},
    {"aten::adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d, aten::mean"},
    {"aten::adaptive_avg_pool3d", "aten::_adaptive_avg_pool3d, aten::mean"},
    {"aten::alpha_dropout", "aten::bernoulli_, aten::mul, aten::add"},
    {"aten::avg_pool1d", "aten::avg_pool2d"},
    {"aten::batch_norm", "aten::native_batch_norm"},
    {"aten::bilinear", "aten::_trilinear"},
    {"aten::clip", "aten::clamp"},
    {"aten::concat", "aten::cat"},
    {"aten::contiguous", "aten::clone"},
    {"aten::conv1d", "aten::convolution"},
    {"aten::conv2d", "aten::convolution"},
    {"aten::conv3d", "aten::convolution"},
    {"aten::conv_transpose1d", "aten::convolution"},
    {"aten::conv_transpose2d", "aten::convolution"},
    {"aten::conv_transpose3d", "aten::convolution"},
    {"aten::cross_entropy_loss", "aten::_log_softmax, aten::nll_loss_forward"},
    {"aten::ctc_loss", "aten::_ctc_loss"},
    {"aten::divide", "aten::div"},
    {"aten::dropout", "aten::bernoulli_, aten::div_, aten::mul"},
    {"aten::einsum", "aten::bmm, aten::mul, aten::sum"},
    {"aten::embedding_bag", "aten::_embedding_bag"},
    {"aten::feature_dropout", "aten::bernoulli_, aten::div_, aten::mul"},
    {"aten::flatten", "aten::clone"},
    {"aten::group_norm", "aten::native_group_norm"},
    {"aten::gru", "aten::addmm, aten::sigmoid_, aten::tanh_"},
    {"aten::hstack", "aten::cat"},
    {"aten::inner", "aten::mm"},
    {"aten::instance_norm", "aten::native_batch_norm"},
    {"aten::layer_norm", "aten::native_layer_norm"},
    {"aten::linalg_multi_dot", "aten::mm"},
    {"aten::linear", "aten::mm, aten::addmm"},
    {"aten::log_softmax", "aten::_log_softmax"},
    {"aten::lstm", "aten::mkldnn_rnn_layer, aten::addmm, aten::sigmoid_, aten::tanh_"},
    {"aten::matmul", "aten::mm, aten::bmm, aten::mv, aten::dot"},
    {"aten::max_pool1d", "aten::max_pool2d_with_indices"},
    {"aten::max_pool2d", "aten::max_pool2d_with_indices"},
    {"aten::max_pool3d", "aten::max_pool3d_with_indices"},
    {"aten::multiply", "aten::mul"},
    {"aten::nll_loss", "aten::nll_loss_forward"},
    {"aten::nll_loss2d", "aten::nll_loss2d_forward"},
    {"aten::outer", "aten::mul"},
    {"aten::relu6", "aten::hardtanh"},
    {"aten::reshape", "aten::clone"},
    {"aten::rms_norm", "aten::mul, aten::rsqrt"},
    {"aten::rnn_tanh", "aten::addmm, aten::tanh"},
    {"aten::scaled_dot_product_attention",
     "aten::_scaled_dot_product_flash_attention_for_cpu, aten::bmm, aten::_safe_softmax"},
    {"aten::selu", "aten::elu"},
    {"aten::softmax", "aten::_softmax"},
    {"aten::square", "aten::pow"},
    {"aten::subtract", "aten::sub"},
    {"aten::tensordot", "aten::mm"},
    {"aten::tile", "aten::repeat"},
    {"aten::to", "aten::_to_copy"},
    {"aten::vstack", "aten::cat"},
});

/// Empty where it is not known.
inline std::string_view parts_of(std::string_view composite) {
  for (const Composite& known : kComposites) {
    if (known.name == composite) return known.parts;
  }
  return {};
}

/// Some that are composites for all tensors that are ever recorded have kernels for others, such as nested ones.
inline bool is_known_composite(std::string_view name) { return !parts_of(name).empty(); }

}  // namespace remat
