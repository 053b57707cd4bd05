// chat/tokens.h -- what a chat template consists of: text, and in tags names, operators and literals.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::chat {

struct Token {
  enum class Kind : uint8_t {
    kText,   ///< between tags
    kBegin,  ///< of a tag: "{{" or "{%"
    kEnd,    ///< of a tag: "}}" or "%}"
    kName,
    kOperator,
    kString,   ///< `text` without quotes and escapes
    kInteger,  ///< `text` has its decimal digits
  };
  Kind kind = Kind::kText;
  std::string text = {};
  int64_t line = 1;

  bool is(Kind other, std::string_view content) const { return kind == other && text == content; }
};

/// White space around tags and comments is treated as Jinja does with trim_blocks and lstrip_blocks; comments are left
/// out. Throws TemplateProblem.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace remat::chat
