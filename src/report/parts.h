// src/report/parts.h -- the parts of memory as they are shown: the order in which they are stacked, names and colours.
#pragma once

#include <array>

#include <remat/timeline.h>

namespace remat {

struct PartStyle {
  int64_t MemoryParts::*bytes;
  const char* name;   ///< in JSON
  const char* label;  ///< for people
  const char* color;  ///< of Okabe and Ito's palette, whose colours people with any colour vision tell apart
  const char* ink;    ///< that can be read upon it
};

/// From the bottom up: what is always there, what is kept, what comes and goes.
inline constexpr std::array<PartStyle, 7> kParts = {{
    {&MemoryParts::parameters, "parameters", "parameters", "#9a9a9a", "#000"},
    {&MemoryParts::gradients, "gradients", "gradients", "#cc79a7", "#000"},
    {&MemoryParts::optimizer, "optimizer", "optimizer and inputs", "#009e73", "#fff"},
    {&MemoryParts::kept, "kept", "kept activations", "#0072b2", "#fff"},
    {&MemoryParts::packed, "packed", "packed", "#56b4e9", "#000"},
    {&MemoryParts::temporaries, "temporaries", "temporaries", "#e69f00", "#000"},
    {&MemoryParts::recomputed, "recomputed", "recomputed", "#d55e00", "#fff"},
}};

}  // namespace remat
