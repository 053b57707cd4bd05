// common/json_object.h -- JSON of files that nobody vouches for.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace remat::common {

/// Why a text was refused, as the end of a sentence: "is no JSON at byte 7".
struct JsonProblem {
  std::string text;
};

/// Parses the whole of `text`, which must be an object. Throws JsonProblem for anything else, for objects and arrays
/// that are nested deeper than `most_nested`, for more values than `most_values`, and for a name that an object has
/// twice, which nlohmann/json's own documents would accept. Takes time and memory in proportion to the text, and does
/// not recurse.
nlohmann::json read_json_object(std::string_view text, size_t most_nested,
                                size_t most_values = std::numeric_limits<size_t>::max());

}  // namespace remat::common
