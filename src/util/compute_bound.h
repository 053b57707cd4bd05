// src/util/compute_bound.h -- operators that take long for the bytes that they read and write, by name: the one table
// that planners, policies and the recorder read.
#pragma once

#include <string_view>

namespace remat {

bool is_product(std::string_view name);  ///< of matrices
bool is_convolution(std::string_view name);
bool is_attention(std::string_view name);  ///< fused
bool is_recurrent(std::string_view name);  ///< a whole layer in one operator
/// Any of these.
bool is_compute_bound(std::string_view name);

}  // namespace remat
