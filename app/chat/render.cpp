#include "chat/render.h"

#include <type_traits>
#include <utility>

namespace remat::chat {
namespace {

using Kind = Expression::Kind;

constexpr int64_t kMostOperations = 10'000'000;
constexpr int64_t kMostRange = 100'000;

class Renderer {
 public:
  explicit Renderer(const std::map<std::string, Value>& variables) : scopes_{variables} {}

  std::string run(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) run(statement);
    return std::move(text_);
  }

 private:
  void run_all(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) run(statement);
  }

  void run(const Statement& statement) {
    count(statement.line);
    switch (statement.kind) {
      case Statement::Kind::kText:
        text_ += statement.name;
        return;
      case Statement::Kind::kOutput:
        text_ += at(statement.line, [&] { return text_of(value(statement.expression)); });
        return;
      case Statement::Kind::kSet:
        return set(statement);
      case Statement::Kind::kFor:
        return loop(statement);
      case Statement::Kind::kIf:
        return run_all(holds(value(statement.expression)) ? statement.body : statement.otherwise);
      case Statement::Kind::kScope:
        return run_in_scope(statement.body);
    }
  }

  void run_in_scope(const std::vector<Statement>& statements, std::map<std::string, Value> variables = {}) {
    scopes_.push_back(std::move(variables));
    run_all(statements);
    scopes_.pop_back();
  }

  void set(const Statement& statement) {
    Value made = value(statement.expression);
    if (statement.attribute.empty()) {
      scopes_.back()[statement.name] = std::move(made);
      return;
    }
    Value* space = find(statement.name);
    if (space == nullptr || !space->is_object())
      fail(statement.line, "'" + statement.name + "' is no namespace, whose attributes could be set");
    (*space)[statement.attribute] = std::move(made);
  }

  void loop(const Statement& statement) {
    if (!statement.attribute.empty()) fail(statement.line, "a loop with several names is not known here");
    Value all = value(statement.expression);
    if (all.is_discarded()) all = Value::array();
    if (!all.is_array()) fail(statement.line, "a loop over " + kind_of(all) + " is not known here");
    if (!statement.condition.empty()) {
      Value chosen = Value::array();
      for (const Value& element : all) {
        scopes_.push_back({{statement.name, element}});
        if (holds(value(statement.condition[0]))) chosen.push_back(element);
        scopes_.pop_back();
      }
      all = std::move(chosen);
    }
    if (all.empty()) return run_in_scope(statement.otherwise);
    const size_t size = all.size();
    for (size_t i = 0; i < size; ++i) {
      Value about = {{"index", i + 1},  {"index0", i},           {"revindex", size - i}, {"revindex0", size - i - 1},
                     {"first", i == 0}, {"last", i + 1 == size}, {"length", size}};
      if (i > 0) about["previtem"] = all[i - 1];
      if (i + 1 < size) about["nextitem"] = all[i + 1];
      run_in_scope(statement.body, {{statement.name, all[i]}, {"loop", std::move(about)}});
    }
  }

  Value value(const Expression& expression) {
    count(expression.line);
    const auto operand = [&](size_t i) { return value(expression.operands[i]); };
    return at(expression.line, [&]() -> Value {
      switch (expression.kind) {
        case Kind::kLiteral:
          return expression.literal;
        case Kind::kList: {
          Value list = Value::array();
          for (const Expression& element : expression.operands) list.push_back(value(element));
          return list;
        }
        case Kind::kName: {
          const Value* found = find(expression.name);
          return found == nullptr ? undefined() : *found;
        }
        case Kind::kAttribute:
          return attribute(operand(0), expression.name);
        case Kind::kItem:
          return item(operand(0), operand(1));
        case Kind::kSlice:
          return slice(operand(0), operand(1), operand(2), operand(3));
        case Kind::kCall:
          return call(expression);
        case Kind::kFilter:
          return filter(expression.name, operand(0), arguments(expression));
        case Kind::kTest:
          return test(expression.name, operand(0), arguments(expression));
        case Kind::kNot:
          return !holds(operand(0));
        case Kind::kNegative:
          return binary("-", 0, operand(0));
        case Kind::kBinary: {
          Value left = operand(0);
          if (expression.name == "and") return holds(left) ? operand(1) : left;
          if (expression.name == "or") return holds(left) ? left : operand(1);
          return binary(expression.name, left, operand(1));
        }
        case Kind::kConditional:
          if (holds(operand(1))) return operand(0);
          return expression.operands.size() > 2 ? operand(2) : undefined();
      }
      return undefined();
    });
  }

  /// In Jinja, what a mapping's methods are called is no member of it.
  static Value attribute(const Value& of, const std::string& name) {
    for (const char* method : {"items", "keys", "values", "get", "pop", "copy", "update", "clear", "setdefault"}) {
      if (name == method) throw ValueProblem{"the attribute '" + name + "' is not known here"};
    }
    return of.is_string() || of.is_array() ? undefined() : item(of, name);
  }

  std::vector<Value> arguments(const Expression& expression) {
    if (!expression.names.empty()) throw ValueProblem{"arguments by name are not known here"};
    std::vector<Value> values;
    for (size_t i = 1; i < expression.operands.size(); ++i) values.push_back(value(expression.operands[i]));
    return values;
  }

  Value call(const Expression& expression) {
    const Expression& callee = expression.operands[0];
    if (callee.kind == Kind::kAttribute) return method(callee.name, value(callee.operands[0]), arguments(expression));
    if (callee.kind == Kind::kName && callee.name == "namespace") {
      Value space = Value::object();
      const size_t unnamed = expression.operands.size() - 1 - expression.names.size();
      if (unnamed > 0) throw ValueProblem{"'namespace' with arguments without names is not known here"};
      for (size_t i = 0; i < expression.names.size(); ++i)
        space[expression.names[i]] = value(expression.operands[i + 1]);
      return space;
    }
    const std::vector<Value> given = arguments(expression);
    if (callee.kind == Kind::kName && callee.name == "raise_exception") {
      throw TemplateProblem{.text = given.empty() ? "" : text_of(given[0]), .line = expression.line, .by_author = true};
    }
    if (callee.kind == Kind::kName && callee.name == "range" && given.size() == 1 && given[0].is_number_integer()) {
      const auto size = given[0].get<int64_t>();
      if (size > kMostRange) throw ValueProblem{"a range of " + std::to_string(size) + " is too long"};
      Value list = Value::array();
      for (int64_t i = 0; i < size; ++i) list.push_back(i);
      return list;
    }
    throw ValueProblem{callee.kind == Kind::kName ? "the function '" + callee.name + "' is not known here"
                                                  : "a call of a value is not known here"};
  }

  Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  /// What is wrong with a value is so at this line.
  template <class F>
  static std::invoke_result_t<F> at(int64_t line, const F& work) {
    try {
      return work();
    } catch (const ValueProblem& problem) {
      fail(line, problem.text);
    }
  }

  void count(int64_t line) {
    if (++operations_ > kMostOperations) fail(line, "it takes more than ten million operations");
  }
  [[noreturn]] static void fail(int64_t line, const std::string& what) {
    throw TemplateProblem{.text = what, .line = line};
  }

  std::vector<std::map<std::string, Value>> scopes_;
  std::string text_;
  int64_t operations_ = 0;
};

}  // namespace

std::string render(const std::vector<Statement>& statements, const std::map<std::string, Value>& variables) {
  return Renderer(variables).run(statements);
}

}  // namespace remat::chat
