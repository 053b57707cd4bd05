// src/plan/costly.h -- operators that are costly to replay, by name.
#pragma once

#include <string_view>
#include <vector>

#include <remat/graph.h>

namespace remat::planners {

bool is_product(std::string_view name);  ///< of matrices
bool is_convolution(std::string_view name);
bool is_attention(std::string_view name);  ///< fused

/// The values that are results of operators with `costly`, by value. What an operator writes in place over such a
/// result is one too: a bias that is added to a product.
std::vector<bool> results_of(const Graph& graph, bool (*costly)(std::string_view name));

}  // namespace remat::planners
