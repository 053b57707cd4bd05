// pretrained/describe.h -- the kinds of models by what they have in common, and what their descriptions share.
#pragma once

#include <initializer_list>
#include <span>

#include "pretrained/families.h"

namespace remat::pretrained {

std::span<const Family> decoder_families();  ///< what predicts the next token
std::span<const Family> encoder_families();  ///< what sees a text from both sides
std::span<const Family> picture_families();  ///< what classifies pictures

/// Throws Error unless the task of `options` is one of `known`.
void expect_task(const ConfigFile& config, const LoadOptions& options, std::initializer_list<Task> known);

inline std::span<const char* const> no_head(Task /*task*/) { return {}; }

}  // namespace remat::pretrained
