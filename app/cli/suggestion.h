// cli/suggestion.h -- what a misspelt word was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace remat::cli {

/// The candidate that differs from `word` by the fewest typing errors: a letter too many, missing or another, or two
/// neighbours exchanged. Empty where even that is no likely slip. Of equally near ones the first.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean --layers?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace remat::cli
