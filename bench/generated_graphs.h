// bench/generated_graphs.h -- graphs of training steps of any size, without running any: for measuring planners on
// steps that nobody tuned them on.
//
// Each kind is a family of networks; shapes, widths and which layers have dropout differ by seed. Operators have the
// bytes and times of a machine with 10 GB/s of memory and 100 GFLOP/s. Plain's memory goes as in PyTorch: a tensor that
// is not saved is freed after its last reader, gradients of activations live from the first backward operator that
// makes them to the one that uses them up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>

namespace remat::bench {

/// "chain", "transformer", "resnet", "unet", "lstm", "experts" (a mixture of experts), "dag" (operators read any two
/// older results).
const std::vector<std::string_view>& graph_kinds();

/// A sound graph of about `operators` operators, the same for the same arguments on every machine. Throws Error for a
/// kind that is not listed, or fewer than 10 operators.
Graph generate_graph(std::string_view kind, int64_t operators, uint64_t seed);

}  // namespace remat::bench
