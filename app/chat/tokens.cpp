#include "chat/tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "chat/template_problem.h"

namespace remat::chat {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : rest_(text) {}

  std::vector<Token> run() {
    while (!rest_.empty()) {
      const size_t begin = find_tag();
      add_text(begin);
      if (rest_.empty()) break;
      const char kind = rest_[1];
      take(2);
      if (!rest_.empty() && (rest_[0] == '-' || rest_[0] == '+')) take(1);
      if (kind == '#') {
        skip_comment();
      } else {
        read_tag(kind);
      }
    }
    return std::move(tokens_);
  }

 private:
  size_t find_tag() const {
    for (size_t at = 0; at + 1 < rest_.size(); ++at) {
      if (rest_[at] == '{' && (rest_[at + 1] == '{' || rest_[at + 1] == '%' || rest_[at + 1] == '#')) return at;
    }
    return rest_.size();
  }

  void take(size_t count) {
    line_ += std::ranges::count(rest_.substr(0, count), '\n');
    rest_.remove_prefix(count);
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  /// Up to the tag at `end`, whose sign decides about the white space before it.
  void add_text(size_t end) {
    std::string_view text = rest_.substr(0, end);
    if (end < rest_.size()) {
      const char kind = rest_[end + 1], sign = end + 2 < rest_.size() ? rest_[end + 2] : ' ';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kSpace) + 1);
      } else if (sign != '+' && kind != '{') {  // lstrip_blocks
        const size_t line = text.rfind('\n') + 1;
        const bool only_space = text.find_first_not_of(kSpace, line) == std::string_view::npos;
        if (only_space && (line > 0 || at_line_start_)) text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(Token::Kind::kText, std::string(text));
    take(end);
  }

  /// After a tag's end; `trims`: a newline behind it goes, too (trim_blocks).
  void end_tag(bool strips, bool trims) {
    const size_t space = std::min(rest_.find_first_not_of(kSpace), rest_.size());
    const size_t count = strips ? space : trims && rest_.starts_with('\n') ? 1 : 0;
    at_line_start_ = count > 0 && rest_[count - 1] == '\n';
    take(count);
  }

  void skip_comment() {
    const size_t end = rest_.find("#}");
    if (end == std::string_view::npos) fail("a comment has no end");
    const char sign = end > 0 ? rest_[end - 1] : ' ';
    take(end + 2);
    end_tag(/*strips=*/sign == '-', /*trims=*/sign != '+');
  }

  void read_tag(char kind) {
    add(Token::Kind::kBegin, kind == '{' ? "{{" : "{%");
    const std::string_view end = kind == '{' ? "}}" : "%}";
    int64_t braces = 0;  // "}}" may end two dictionaries
    for (;;) {
      const size_t space = std::min(rest_.find_first_not_of(kSpace), rest_.size());
      take(space);
      if (rest_.empty()) fail("a tag has no end");
      if (braces == 0) {
        const bool signed_end = (rest_[0] == '-' || rest_[0] == '+') && rest_.substr(1).starts_with(end);
        if (signed_end || rest_.starts_with(end)) {
          const char sign = rest_[0];
          add(Token::Kind::kEnd, std::string(end));
          take(signed_end ? 3 : 2);
          return end_tag(/*strips=*/signed_end && sign == '-',
                         /*trims=*/kind == '%' && !(signed_end && sign == '+'));
        }
      }
      read_token(braces);
    }
  }

  void read_token(int64_t& braces) {
    const char c = rest_[0];
    const auto length_while = [&](auto belongs) {
      return static_cast<size_t>(std::ranges::find_if_not(rest_, belongs) - rest_.begin());
    };
    if (c == '\'' || c == '"') return read_string();
    if (is_letter(c)) return read(Token::Kind::kName, length_while([](char x) { return is_letter(x) || is_digit(x); }));
    if (is_digit(c)) return read(Token::Kind::kInteger, length_while(is_digit));
    constexpr std::array<std::string_view, 24> kOperators = {"==", "!=", "<=", ">=", "//", "**", "+", "-",
                                                             "*",  "/",  "%",  "~",  "|",  "(",  ")", "[",
                                                             "]",  "{",  "}",  ",",  ".",  ":",  "<", ">"};
    for (const std::string_view op : kOperators) {
      if (!rest_.starts_with(op)) continue;
      braces += op == "{" ? 1 : op == "}" ? -1 : 0;
      return read(Token::Kind::kOperator, op.size());
    }
    if (c == '=') return read(Token::Kind::kOperator, 1);
    fail("'" + std::string(1, c) + "' begins no name, number or operator");
  }

  void read(Token::Kind kind, size_t length) {
    add(kind, std::string(rest_.substr(0, length)));
    take(length);
  }

  void read_string() {
    const char quote = rest_[0];
    const int64_t line = line_;
    take(1);
    std::string text;
    for (;;) {
      if (rest_.empty()) fail("a string has no end");
      const char c = rest_[0];
      take(1);
      if (c == quote) break;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (rest_.empty()) fail("a string has no end");
      text += escaped(rest_[0]);
      take(1);
    }
    tokens_.push_back({.kind = Token::Kind::kString, .text = std::move(text), .line = line});
  }

  std::string escaped(char c) const {
    switch (c) {
      case 'n':
        return "\n";
      case 't':
        return "\t";
      case 'r':
        return "\r";
      case '\n':
        return "";
      case '\\':
      case '\'':
      case '"':
        return {c};
      default:
        fail(std::string("the escape \\") + c + " is not known");
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw TemplateProblem{.text = what, .line = line_}; }

  std::string_view rest_;
  std::vector<Token> tokens_;
  int64_t line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::string lines;  // Jinja has "\n" between lines, and none at the end
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    lines += text[i] == '\r' ? '\n' : text[i];
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return Lexer(lines).run();
}

}  // namespace remat::chat
