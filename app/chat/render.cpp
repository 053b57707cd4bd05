#include "chat/render.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <type_traits>
#include <utility>

namespace remat::chat {
namespace {

using Kind = Expression::Kind;

constexpr int64_t kMostOperations = 10'000'000;
constexpr int64_t kMostRange = 100'000;

/// What an expression gives: a value that is somewhere already, or one that was made for it.
class Seen {
 public:
  explicit Seen(const Value& there) : there_(&there) {}
  explicit Seen(Value&& made) : made_(std::move(made)) {}

  const Value& operator*() const { return there_ != nullptr ? *there_ : made_; }
  bool is_made() const { return there_ == nullptr; }
  Value take() && { return std::move(made_); }

 private:
  const Value* there_ = nullptr;
  Value made_;
};

bool is_namespace(const Value& value) { return value.is_binary() && value.get_binary().has_subtype(); }

/// Whether it gives what Jinja calls a generator: it can be gone through once, has no length, and always holds.
bool is_generator(const Expression& expression) {
  return expression.kind == Kind::kFilter && (expression.name == "selectattr" || expression.name == "rejectattr");
}

bool goes_through_once(const Expression& filter) {
  return is_generator(filter) || filter.name == "list" || filter.name == "first" || filter.name == "join";
}

/// Of a text; what else there is can be looked at at once.
int64_t length_of(const Value& value) {
  return value.is_string() ? static_cast<int64_t>(value.get_ref<const std::string&>().size()) : 1;
}

/// In Jinja, what a mapping's methods are called is no member of it.
void refuse_methods(const std::string& name) {
  for (const char* method : {"items", "keys", "values", "get", "pop", "copy", "update", "clear", "setdefault"}) {
    if (name == method) throw ValueProblem{"the attribute '" + name + "' is not known here"};
  }
}

/// Of a value, when something is looked for that is as long as `arguments` are.
int64_t bytes_read(const Value& of, const std::vector<Value>& arguments) {
  int64_t sought = 0;
  for (const Value& argument : arguments) sought += length_of(argument);
  return length_of(of) * (1 + sought / 8);
}

class Renderer {
 public:
  explicit Renderer(const std::map<std::string, Value>& variables) : scopes_{variables} {}

  std::string run(const std::vector<Statement>& statements) {
    run_all(statements);
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
        return write(statement.line, statement.name);
      case Statement::Kind::kOutput:
        return write(statement.line, at(statement.line, [&] { return text_of(*see(statement.expression)); }));
      case Statement::Kind::kSet:
        return set(statement);
      case Statement::Kind::kFor:
        return loop(statement);
      case Statement::Kind::kIf:
        return run_all(holds(*see(statement.expression)) ? statement.body : statement.otherwise);
      case Statement::Kind::kScope:
        return run_in_scope(statement.body);
    }
  }

  void write(int64_t line, const std::string& text) {
    charge(line, static_cast<int64_t>(text.size()));
    text_ += text;
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
    const Value& space = variable(statement.name);
    if (!is_namespace(space))
      fail(statement.line, "'" + statement.name + "' is no namespace, whose attributes could be set");
    members(space)[statement.attribute] = std::move(made);
  }

  void loop(const Statement& statement) {
    if (!statement.attribute.empty()) fail(statement.line, "a loop with several names is not known here");
    Value all = is_generator(statement.expression) ? at(statement.line, [&] { return filtered(statement.expression); })
                                                   : value(statement.expression);
    if (all.is_discarded()) all = Value::array();
    if (!all.is_array()) fail(statement.line, "a loop over " + kind_of(all) + " is not known here");
    charge(statement.line, 4 * bytes_of(all));  // each is copied as often below
    if (!statement.condition.empty()) {
      Value chosen = Value::array();
      for (const Value& element : all) {
        scopes_.push_back({{statement.name, element}});
        if (holds(*see(statement.condition[0]))) chosen.push_back(element);
        scopes_.pop_back();
      }
      all = std::move(chosen);
    }
    if (all.empty()) return run_in_scope(statement.otherwise);
    const size_t size = all.size();
    for (size_t i = 0; i < size; ++i) {
      Value about = {{"index", i + 1},  {"index0", i},           {"revindex", size - i}, {"revindex0", size - i - 1},
                     {"first", i == 0}, {"last", i + 1 == size}, {"length", size},       {"depth", 1},
                     {"depth0", 0}};  // deeper are loops that call themselves
      if (i > 0) about["previtem"] = all[i - 1];
      if (i + 1 < size) about["nextitem"] = all[i + 1];
      run_in_scope(statement.body, {{statement.name, all[i]}, {"loop", std::move(about)}});
    }
  }

  Value value(const Expression& expression) {
    Seen seen = see(expression);
    if (seen.is_made()) return std::move(seen).take();
    charge(expression.line, bytes_of(*seen));
    return *seen;
  }

  /// Valid until a statement is run.
  Seen see(const Expression& expression) {
    count(expression.line);
    const auto operand = [&](size_t i) -> const Expression& { return expression.operands[i]; };
    return at(expression.line, [&]() -> Seen {
      switch (expression.kind) {
        case Kind::kLiteral:
          return Seen(expression.literal);
        case Kind::kName:
          return Seen(variable(expression.name));
        case Kind::kAttribute: {
          refuse_methods(expression.name);
          const Seen of = see(operand(0));
          if ((*of).is_string() || (*of).is_array()) return Seen(undefined());
          return part_of(of, expression.name);
        }
        case Kind::kItem:
          return part_of(see(operand(0)), *see(operand(1)));
        case Kind::kConditional:
          if (holds(*see(operand(1)))) return see(operand(0));
          return expression.operands.size() > 2 ? see(operand(2)) : Seen(undefined());
        case Kind::kBinary:
          if (expression.name == "and" || expression.name == "or") {
            Seen left = see(operand(0));
            return holds(*left) == (expression.name == "and") ? see(operand(1)) : std::move(left);
          }
          [[fallthrough]];
        default:
          return Seen(charged(made_by(expression)));
      }
    });
  }

  Value made_by(const Expression& expression) {
    const auto operand = [&](size_t i) { return see(expression.operands[i]); };
    switch (expression.kind) {
      case Kind::kList: {
        Value list = Value::array();
        for (const Expression& element : expression.operands) list.push_back(value(element));
        return list;
      }
      case Kind::kSlice:
        return slice(*operand(0), *operand(1), *operand(2), *operand(3));
      case Kind::kCall:
        return call(expression);
      case Kind::kFilter:
        if (is_generator(expression))
          throw ValueProblem{"'" + expression.name + "' without '|list' behind it is not known here"};
        return filtered(expression);
      case Kind::kTest: {
        const Seen of = operand(0);
        const std::vector<Value> given = arguments(expression);
        charge(bytes_read(*of, given));
        return test(expression.name, *of, given);
      }
      case Kind::kNot:
        return !holds(*operand(0));
      case Kind::kNegative:
        return binary("-", 0, *operand(0));
      case Kind::kBinary: {
        const Seen left = operand(0), right = operand(1);
        const bool same = expression.name == "==" || expression.name == "!=";
        if ((*right).is_array() || (same && (*right).is_object())) charge(bytes_of(*right));
        if (same || expression.name == "in") charge(length_of(*right) * (1 + length_of(*left) / 8));
        return binary(expression.name, *left, *right);
      }
      default:
        return undefined();
    }
  }

  Value filtered(const Expression& expression) {
    const Expression& first = expression.operands[0];
    const Seen of = is_generator(first) && goes_through_once(expression) ? Seen(charged(filtered(first))) : see(first);
    const std::vector<Value> given = arguments(expression);
    charge(bytes_read(*of, given));
    if (is_generator(expression)) {
      charge(bytes_of(*of));
      for (const Value& argument : given) charge(static_cast<int64_t>((*of).size()) * bytes_of(argument));
    }
    return filter(expression.name, *of, given);
  }

  Seen part_of(const Seen& of, const Value& index) {
    if (is_namespace(*of)) return Seen(part(members(*of), index));
    const Value& found = part(*of, index);
    return of.is_made() ? Seen(Value(found)) : Seen(found);
  }

  std::vector<Value> arguments(const Expression& expression) {
    if (!expression.names.empty()) throw ValueProblem{"arguments by name are not known here"};
    std::vector<Value> values;
    for (size_t i = 1; i < expression.operands.size(); ++i) values.push_back(value(expression.operands[i]));
    return values;
  }

  Value call(const Expression& expression) {
    const Expression& callee = expression.operands[0];
    if (callee.kind == Kind::kAttribute) {
      const Seen of = see(callee.operands[0]);
      const std::vector<Value> given = arguments(expression);
      charge(bytes_read(*of, given));
      return method(callee.name, *of, given);
    }
    if (callee.kind == Kind::kName && callee.name == "namespace") {
      const size_t unnamed = expression.operands.size() - 1 - expression.names.size();
      if (unnamed > 0) throw ValueProblem{"'namespace' with arguments without names is not known here"};
      Value space = Value::object();
      for (size_t i = 0; i < expression.names.size(); ++i)
        space[expression.names[i]] = value(expression.operands[i + 1]);
      charge(bytes_of(space));
      spaces_.push_back(std::move(space));
      return Value::binary(Value::binary_t::container_type(), spaces_.size() - 1);
    }
    const std::vector<Value> given = arguments(expression);
    if (callee.kind == Kind::kName && callee.name == "raise_exception") {
      throw TemplateProblem{.text = given.empty() ? "" : text_of(given[0]), .line = expression.line, .by_author = true};
    }
    if (callee.kind == Kind::kName && callee.name == "range" && given.size() == 1 && given[0].is_number_integer()) {
      const auto size = binary("+", given[0], 0).get<int64_t>();
      if (size > kMostRange) throw ValueProblem{"a range of " + std::to_string(size) + " is too long"};
      Value list = Value::array();
      for (int64_t i = 0; i < size; ++i) list.push_back(i);
      return list;
    }
    throw ValueProblem{callee.kind == Kind::kName ? "the function '" + callee.name + "' is not known here"
                                                  : "a call of a value is not known here"};
  }

  /// Undefined where there is none.
  const Value& variable(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return found->second;
    }
    static const Value none = undefined(), function = Value::binary(Value::binary_t::container_type());
    constexpr std::string_view kFunctions[] = {"raise_exception", "namespace", "range", "dict",
                                               "lipsum",          "cycler",    "joiner"};
    return std::ranges::find(kFunctions, name) != std::end(kFunctions) ? function : none;
  }

  /// Of a namespace, which variables share.
  Value& members(const Value& space) { return spaces_[space.get_binary().subtype()]; }

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
  /// Of what is made, and of what is read for it: either takes time.
  void charge(int64_t bytes) {
    bytes_ += bytes;
    check_bytes(bytes_);
  }
  void charge(int64_t line, int64_t bytes) {
    at(line, [&] { charge(bytes); });
  }
  Value charged(Value made) {
    charge(bytes_of(made));
    return made;
  }
  [[noreturn]] static void fail(int64_t line, const std::string& what) {
    throw TemplateProblem{.text = what, .line = line};
  }

  std::vector<std::map<std::string, Value>> scopes_;
  std::deque<Value> spaces_;  ///< the members of each namespace
  std::string text_;
  int64_t operations_ = 0, bytes_ = 0;
};

}  // namespace

std::string render(const std::vector<Statement>& statements, const std::map<std::string, Value>& variables) {
  return Renderer(variables).run(statements);
}

}  // namespace remat::chat
