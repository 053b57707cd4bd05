// remat/run.h -- one step with all that is known of it, and pictures of that.
//
// Pure functions: no torch, no clock, no files. docs/report.md shows what they make, docs/formats.md has the JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remat/graph.h>
#include <remat/plan.h>
#include <remat/report.h>

namespace remat {

/// A step: what it did, what was planned for it, what was measured. Plain data.
struct Run {
  static constexpr int kVersion = 1;  ///< of the JSON that to_json() writes, the only one that is read

  std::string name = {};                  ///< what ran, for people: "gpt"; may be empty
  Graph graph = {};                       ///< of the step
  std::optional<Plan> plan = {};          ///< that it followed, or would follow; nothing: plain, or memory decided
  std::optional<StepReport> report = {};  ///< what was measured; nothing: the step was not run under the plan
  /// By operator: the layer that it is in, "blocks.3.attention"; empty: not known.
  std::vector<std::string> layers = {};

  /// Empty if the run is sound, otherwise what is wrong: with the graph, or with the plan or the number of layers for
  /// it.
  std::string problem() const;
};

/// JSON with the names above, the parts as they are written alone.
std::string to_json(const Run& run);
/// What to_json() wrote. Throws Error on anything that is not a sound run of this version.
Run run_from_json(std::string_view text);

// The pictures. Each throws Error where the run is not sound. Names may hold any UTF-8.

/// A page for browsers, in one file that loads nothing else: memory over the step, plain and under the plan, what
/// became of each value and what that cost, what was planned and what was measured.
std::string to_html(const Run& run);
/// A picture of memory over the step, plain and under the plan: SVG that suits light and dark backgrounds.
std::string to_svg(const Run& run);
/// The step by layer, as a table for terminals: bytes that plain saves for backward, and of them those that the plan
/// keeps, packs, moves and recomputes; how many operators run again for a layer's values, and what bringing them back
/// takes. Layers inside others are indented, and counted in those around them. Equal layers are one row with the sums
/// of all: "layers.0-11 x 12". Without a plan: what plain saves. Throws Error also where `layers` is empty.
std::string to_text(const Run& run);
/// The step as trace events, in the JSON that Perfetto and chrome://tracing read.
std::string to_trace(const Run& run);

}  // namespace remat
