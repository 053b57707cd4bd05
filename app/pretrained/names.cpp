#include "pretrained/names.h"

#include <algorithm>
#include <cctype>

namespace remat::pretrained {
namespace {

/// The number that the '*' of `pattern` stands for in `module`, empty where it has none; nothing where they differ.
std::optional<std::string_view> match(std::string_view pattern, std::string_view module) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return module == pattern ? std::optional(std::string_view()) : std::nullopt;
  if (!module.starts_with(pattern.substr(0, star))) return std::nullopt;
  const std::string_view rest = module.substr(star);
  const auto digits = static_cast<size_t>(
      std::ranges::find_if_not(rest, [](unsigned char c) { return std::isdigit(c) != 0; }) - rest.begin());
  if (digits == 0 || rest.substr(digits) != pattern.substr(star + 1)) return std::nullopt;
  return rest.substr(0, digits);
}

}  // namespace

std::optional<TheirName> find_name(std::span<const Renaming> renamings, std::string_view ours) {
  const size_t dot = ours.rfind('.');
  const std::string_view module = ours.substr(0, dot == std::string_view::npos ? 0 : dot);
  const std::string_view leaf = dot == std::string_view::npos ? ours : ours.substr(dot + 1);
  for (const Renaming& renaming : renamings) {
    if (ours == renaming.ours) return TheirName{std::string(renaming.theirs), renaming.transposed};
    const auto number = match(renaming.ours, module);
    if (!number) continue;
    std::string name(renaming.theirs);
    if (const size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, *number);
    return TheirName{name + "." + std::string(leaf), renaming.transposed && leaf == "weight"};
  }
  return std::nullopt;
}

std::optional<std::string> classifier_of(std::string_view theirs) {
  constexpr std::string_view kName = "classifier";  // also the end of "pre_classifier"
  const size_t at = theirs.find(std::string(kName) + ".");
  if (at == std::string_view::npos) return std::nullopt;
  return std::string(theirs.substr(0, at + kName.size()));
}

}  // namespace remat::pretrained
