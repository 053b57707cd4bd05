#include "chat/syntax.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "chat/tokens.h"

namespace remat::chat {
namespace {

using Kind = Expression::Kind;

constexpr int64_t kMostNested = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::vector<Statement> run() {
    auto statements = read_statements({});
    if (next_ < tokens_.size()) fail("'" + name_of_tag() + "' ends nothing");
    return statements;
  }

 private:
  // Statements.

  /// Up to a tag with one of these names, which is not taken; without names to the end.
  std::vector<Statement> read_statements(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    std::vector<Statement> statements;
    for (; next_ < tokens_.size();) {
      const Token& token = tokens_[next_];
      if (token.kind == Token::Kind::kText) {
        statements.push_back({.kind = Statement::Kind::kText, .line = token.line, .name = token.text});
        ++next_;
      } else if (token.text == "{{") {
        ++next_;
        statements.push_back({.kind = Statement::Kind::kOutput, .line = token.line, .expression = read_expression()});
        end_tag();
      } else {
        const std::string name = name_of_tag();
        if (std::ranges::find(ends, name) != ends.end()) return statements;
        if (name.starts_with("end") || name == "else" || name == "elif") break;
        statements.push_back(read_tag(name));
      }
    }
    if (ends.size() > 0) fail("a tag '" + std::string(*(ends.end() - 1)) + "' is missing");
    return statements;
  }

  std::string name_of_tag() const {
    return next_ + 1 < tokens_.size() && tokens_[next_ + 1].kind == Token::Kind::kName ? tokens_[next_ + 1].text : "";
  }

  Statement read_tag(const std::string& name) {
    const int64_t line = tokens_[next_].line;
    next_ += 2;
    if (name == "set") return read_set(line);
    if (name == "for") return read_for(line);
    if (name == "if") return read_if(line);
    if (name == "generation") {
      end_tag();
      Statement scope{.kind = Statement::Kind::kScope, .line = line, .body = read_statements({"endgeneration"})};
      close_block();
      return scope;
    }
    fail("the tag '" + name + "' is not known here");
  }

  Statement read_set(int64_t line) {
    Statement set{.kind = Statement::Kind::kSet, .line = line, .name = read_name()};
    if (take(".")) set.attribute = read_name();
    if (!take("=")) fail("only a 'set' of one name with '=' is known here");
    set.expression = read_expression();
    end_tag();
    return set;
  }

  Statement read_for(int64_t line) {
    Statement loop{.kind = Statement::Kind::kFor, .line = line, .name = read_name()};
    while (take(",")) loop.attribute += (loop.attribute.empty() ? "" : ",") + read_name();  // refused when it is run
    if (!take_name("in")) fail("'in' is missing in a 'for'");
    loop.expression = read_or();
    if (take_name("if")) loop.condition.push_back(read_expression());
    end_tag();
    loop.body = read_statements({"else", "endfor"});
    if (name_of_tag() == "else") {
      close_block();
      loop.otherwise = read_statements({"endfor"});
    }
    close_block();
    return loop;
  }

  Statement read_if(int64_t line) {
    Statement branch{.kind = Statement::Kind::kIf, .line = line, .expression = read_expression()};
    end_tag();
    branch.body = read_statements({"elif", "else", "endif"});
    if (name_of_tag() == "elif") {
      const Nesting nesting(*this);
      const int64_t other = tokens_[next_].line;
      next_ += 2;
      branch.otherwise.push_back(read_if(other));
      return branch;  // "endif" was the other's
    }
    if (name_of_tag() == "else") {
      close_block();
      branch.otherwise = read_statements({"endif"});
    }
    close_block();
    return branch;
  }

  /// A tag that has a name alone.
  void close_block() {
    next_ += 2;
    end_tag();
  }

  // Expressions, from what binds least.

  Expression read_expression() {
    const Nesting nesting(*this);
    Expression value = read_or();
    while (take_name("if")) {
      std::vector<Expression> operands;
      operands.push_back(std::move(value));
      operands.push_back(read_or());
      if (take_name("else")) operands.push_back(read_expression());
      value = make(Kind::kConditional, "", std::move(operands));
    }
    return value;
  }

  Expression read_or() {
    Expression left = read_and();
    while (take_name("or")) left = binary("or", std::move(left), read_and());
    return left;
  }

  Expression read_and() {
    Expression left = read_not();
    while (take_name("and")) left = binary("and", std::move(left), read_not());
    return left;
  }

  Expression read_not() {
    const Nesting nesting(*this);
    if (take_name("not")) return make(Kind::kNot, "", one(read_not()));
    return read_comparison();
  }

  Expression read_comparison() {
    Expression left = read_sum();
    for (int64_t comparisons = 0;; ++comparisons) {
      std::string op;
      for (const std::string_view known : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (op.empty() && take(known)) op = known;
      }
      if (op.empty() && take_name("in")) op = "in";
      const bool not_in = op.empty() && is_name("not") && is_name("in", 1);
      if (not_in) next_ += 2;
      if (op.empty() && !not_in) return left;
      if (comparisons > 0) fail("a chain of comparisons is not known here");
      left = binary(not_in ? "in" : op, std::move(left), read_sum());
      if (not_in) left = make(Kind::kNot, "", one(std::move(left)));
    }
  }

  Expression read_sum() {
    Expression left = read_concatenation();
    for (;;) {
      if (take("+")) {
        left = binary("+", std::move(left), read_concatenation());
      } else if (take("-")) {
        left = binary("-", std::move(left), read_concatenation());
      } else {
        return left;
      }
    }
  }

  Expression read_concatenation() {
    Expression left = read_product();
    while (take("~")) left = binary("~", std::move(left), read_product());
    return left;
  }

  Expression read_product() {
    Expression left = read_unary();
    for (;;) {
      std::string op;
      for (const std::string_view known : {"*", "//", "%"}) {
        if (op.empty() && take(known)) op = known;
      }
      if (op.empty()) return left;
      left = binary(op, std::move(left), read_unary());
    }
  }

  /// Filters and tests are of all that begins with "-".
  Expression read_unary(bool with_filters = true) {
    const Nesting nesting(*this);
    Expression value = take("-") ? make(Kind::kNegative, "", one(read_unary(false))) : read_postfix(read_primary());
    if (!with_filters) return value;
    return read_filters(std::move(value));
  }

  Expression read_primary() {
    const Token token = expect_any();
    ++next_;
    if (token.kind == Token::Kind::kString) {
      std::string text = token.text;
      while (peek() != nullptr && peek()->kind == Token::Kind::kString) text += tokens_[next_++].text;
      return literal(text);
    }
    if (token.kind == Token::Kind::kInteger) return literal(integer(token.text));
    if (token.kind == Token::Kind::kName) {
      if (token.text == "true" || token.text == "True") return literal(true);
      if (token.text == "false" || token.text == "False") return literal(false);
      if (token.text == "none" || token.text == "None") return literal(nullptr);
      return make(Kind::kName, token.text, {});
    }
    if (token.text == "(") {
      Expression value = read_expression();
      expect(")");
      return value;
    }
    if (token.text == "[") {
      std::vector<Expression> elements;
      while (!take("]")) {
        elements.push_back(read_expression());
        if (!take(",") && !is("]")) fail("']' is missing");
      }
      return make(Kind::kList, "", std::move(elements));
    }
    fail("'" + token.text + "' begins no value that is known here");
  }

  int64_t integer(const std::string& digits) const {
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
      fail("the number " + digits + " is too large");
    return value;
  }

  Expression read_postfix(Expression value) {
    for (;;) {
      if (take(".")) {
        value = make(Kind::kAttribute, read_name(), one(std::move(value)));
      } else if (take("[")) {
        value = read_subscript(std::move(value));
      } else if (is("(")) {
        value = make(Kind::kCall, "", one(std::move(value)));
        read_arguments(value);
      } else {
        return value;
      }
    }
  }

  Expression read_subscript(Expression value) {
    std::vector<Expression> operands = one(std::move(value));
    const auto part = [&] { return is(":") || is("]") ? literal(nullptr) : read_expression(); };
    operands.push_back(part());
    const bool slice = is(":");
    while (operands.size() < 4 && take(":")) operands.push_back(part());
    expect("]");
    if (!slice) return make(Kind::kItem, "", std::move(operands));
    if (operands.size() < 4) operands.push_back(literal(nullptr));
    return make(Kind::kSlice, "", std::move(operands));
  }

  /// "(a, b=c)" behind a call, filter or test.
  void read_arguments(Expression& call) {
    expect("(");
    while (!take(")")) {
      const Token& token = expect_any();
      const bool named = token.kind == Token::Kind::kName && next_ + 1 < tokens_.size() &&
                         tokens_[next_ + 1].is(Token::Kind::kOperator, "=");
      if (!named && !call.names.empty()) fail("an argument without a name follows one with a name");
      if (named) {
        call.names.push_back(token.text);
        next_ += 2;
      }
      call.operands.push_back(read_expression());
      call.depth = std::max(call.depth, call.operands.back().depth + 1);
      if (!take(",") && !is(")")) fail("')' is missing");
    }
  }

  Expression read_filters(Expression value) {
    for (;;) {
      if (take("|")) {
        value = make(Kind::kFilter, read_name(), one(std::move(value)));
        if (is("(")) read_arguments(value);
      } else if (take_name("is")) {
        const bool negated = take_name("not");
        value = make(Kind::kTest, read_name(), one(std::move(value)));
        if (is("("))
          read_arguments(value);
        else if (begins_operand())
          value.operands.push_back(read_postfix(read_primary()));
        if (negated) value = make(Kind::kNot, "", one(std::move(value)));
      } else if (is("(")) {
        value = make(Kind::kCall, "", one(std::move(value)));
        read_arguments(value);
      } else {
        return value;
      }
    }
  }

  /// Behind the name of a test: an argument without parentheses.
  bool begins_operand() const {
    const Token* token = peek();
    if (token == nullptr) return false;
    if (token->kind == Token::Kind::kString || token->kind == Token::Kind::kInteger) return true;
    if (token->kind != Token::Kind::kName) return token->is(Token::Kind::kOperator, "[");
    constexpr std::string_view kNoOperands[] = {"else", "or", "and", "if", "in", "is", "not"};
    return std::ranges::find(kNoOperands, token->text) == std::end(kNoOperands);
  }

  // Tokens.

  /// Counts how deep the parser is.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nested_ > kMostNested * 4) parser_.fail("it is nested too deep");
    }
    ~Nesting() { --parser_.nested_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token* peek() const {
    return next_ < tokens_.size() && tokens_[next_].kind != Token::Kind::kEnd ? &tokens_[next_] : nullptr;
  }
  const Token& expect_any() const {
    if (peek() == nullptr) fail("a value is missing");
    return *peek();
  }
  bool is(std::string_view op) const { return peek() != nullptr && peek()->is(Token::Kind::kOperator, op); }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return next_ + ahead < tokens_.size() && tokens_[next_ + ahead].is(Token::Kind::kName, name);
  }
  bool take(std::string_view op) {
    const bool found = is(op);
    next_ += found ? 1 : 0;
    return found;
  }
  bool take_name(std::string_view name) {
    const bool found = is_name(name);
    next_ += found ? 1 : 0;
    return found;
  }
  void expect(std::string_view op) {
    if (!take(op)) fail("'" + std::string(op) + "' is missing");
  }
  std::string read_name() {
    if (peek() == nullptr || peek()->kind != Token::Kind::kName) fail("a name is missing");
    return tokens_[next_++].text;
  }
  void end_tag() {
    if (next_ >= tokens_.size() || tokens_[next_].kind != Token::Kind::kEnd) {
      fail(peek() == nullptr ? "a tag has no end" : "'" + peek()->text + "' is not known at its place");
    }
    ++next_;
  }

  int64_t line() const { return tokens_.empty() ? 1 : tokens_[std::min(next_, tokens_.size() - 1)].line; }
  [[noreturn]] void fail(const std::string& what) const { throw TemplateProblem{.text = what, .line = line()}; }

  static std::vector<Expression> one(Expression value) {
    std::vector<Expression> operands;
    operands.push_back(std::move(value));
    return operands;
  }
  Expression make(Kind kind, std::string name, std::vector<Expression> operands) const {
    Expression made{.kind = kind, .line = line(), .name = std::move(name), .operands = std::move(operands)};
    for (const Expression& operand : made.operands) made.depth = std::max(made.depth, operand.depth + 1);
    if (made.depth > kMostNested) fail("an expression has too many parts");
    return made;
  }
  Expression binary(std::string name, Expression left, Expression right) const {
    std::vector<Expression> operands = one(std::move(left));
    operands.push_back(std::move(right));
    return make(Kind::kBinary, std::move(name), std::move(operands));
  }
  Expression literal(nlohmann::json value) const {
    Expression made = make(Kind::kLiteral, "", {});
    made.literal = std::move(value);
    return made;
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int64_t nested_ = 0;
};

}  // namespace

std::vector<Statement> parse_template(std::string_view text) { return Parser(tokens_of(text)).run(); }

}  // namespace remat::chat
