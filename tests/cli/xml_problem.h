// tests/cli/xml_problem.h -- is a text well-formed XML? Elements, attributes and references, as far as remat writes
// them.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace remat::test {

/// Checks one text or attribute: no '<', and '&' only in the references that XML has without a DTD.
inline bool is_escaped(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || (static_cast<unsigned char>(text[i]) < 0x20 && text[i] != '\n')) return false;
    if (text[i] != '&') continue;
    bool known = false;
    for (const char* name : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"}) {
      known |= std::string_view(text).substr(i).starts_with(name);
    }
    if (!known) return false;
  }
  return true;
}

/// `text`: from behind an element's name to before its '>' or '/>'.
inline bool has_sound_attributes(const std::string& text) {
  size_t at = 0;
  while ((at = text.find_first_not_of(" \n", at)) != std::string::npos) {
    const auto equals = text.find("=\"", at);
    if (equals == std::string::npos || equals == at) return false;
    for (size_t i = at; i < equals; ++i) {
      if (std::isalnum(static_cast<unsigned char>(text[i])) == 0 && text[i] != '-') return false;
    }
    const auto end = text.find('"', equals + 2);
    if (end == std::string::npos || !is_escaped(text.substr(equals + 2, end - equals - 2))) return false;
    at = end + 1;
    if (at < text.size() && text[at] != ' ' && text[at] != '\n') return false;
  }
  return true;
}

/// Empty if `text` is one element, well-formed; otherwise where it is not.
inline std::string xml_problem(const std::string& text) {
  std::vector<std::string> open;
  bool done = false;
  for (size_t at = 0; at < text.size();) {
    const auto next = text.find('<', at);
    const auto between = text.substr(at, next - at);
    if (!is_escaped(between)) return "bad text: " + between;
    if (open.empty() && between.find_first_not_of(" \n") != std::string::npos) return "text outside: " + between;
    if (next == std::string::npos) break;
    const auto end = text.find('>', next);
    if (end == std::string::npos) return "a tag does not end";
    auto tag = text.substr(next + 1, end - next - 1);
    at = end + 1;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "closed but not open: " + tag;
      open.pop_back();
      done = open.empty();
      continue;
    }
    if (done) return "a second root: " + tag;
    const bool closed = tag.ends_with('/');
    if (closed) tag.pop_back();
    const auto name = tag.substr(0, tag.find_first_of(" \n"));
    if (name.empty() || !has_sound_attributes(tag.substr(name.size()))) return "bad tag: " + tag;
    if (!closed) open.push_back(name);
  }
  if (!open.empty()) return "never closed: " + open.back();
  return done ? "" : "no element";
}

}  // namespace remat::test
