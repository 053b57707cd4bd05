// pretrained/json_object.h -- JSON of files that nobody vouches for.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace remat::pretrained {

/// Parses `text` into `json`. Returns what is wrong with it, as the end of "the file ...", or nothing: it must be an
/// object, no deeper than `most_depth` objects and lists within each other, and no object may have a name twice.
std::string parse_object(const std::string& text, size_t most_depth, nlohmann::json& json);

}  // namespace remat::pretrained
