// chat/syntax.h -- a chat template as a tree: the part of Jinja's language that chat templates use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat/template_problem.h"

namespace remat::chat {

struct Expression {
  enum class Kind : uint8_t {
    kLiteral,
    kList,         ///< operands
    kName,         ///< variable `name`
    kAttribute,    ///< operands[0].name
    kItem,         ///< operands[0][operands[1]]
    kSlice,        ///< operands[0][operands[1]:operands[2]:operands[3]], literals null where left out
    kCall,         ///< operands[0](operands[1] ...); the last ones are by name: `names`
    kFilter,       ///< operands[0] | name(operands[1] ...)
    kTest,         ///< operands[0] is name(operands[1] ...)
    kNot,          ///< not operands[0]
    kNegative,     ///< -operands[0]
    kBinary,       ///< operands[0] name operands[1]: arithmetic, ~, comparisons, in, and, or
    kConditional,  ///< operands[0] if operands[1] else operands[2], which may be left out
  };
  Kind kind = Kind::kLiteral;
  int64_t line = 0;
  std::string name = {};
  nlohmann::json literal = {};
  std::vector<Expression> operands = {};
  std::vector<std::string> names = {};
  int64_t depth = 1;  ///< of this tree
};

struct Statement {
  enum class Kind : uint8_t {
    kText,    ///< `name` as it stands
    kOutput,  ///< the value of `expression`
    kSet,     ///< variable `name`, or where `attribute` is not empty that of a namespace
    kFor,     ///< `body` with each of `expression` as `name`; `otherwise` where there is none
    kIf,      ///< `body` where `expression` holds, else `otherwise`
    kScope,   ///< `body`, whose variables are its own
  };
  Kind kind = Kind::kText;
  int64_t line = 0;
  std::string name = {}, attribute = {};
  Expression expression = {};
  std::vector<Expression> condition = {};  ///< of a loop: which values count; at most one
  std::vector<Statement> body = {}, otherwise = {};
};

/// Reads a template as transformers has Jinja read it: with trim_blocks and lstrip_blocks. Known are output, set, for,
/// if, comments, and transformers' generation blocks. Throws TemplateProblem for anything else, and for what is nested
/// deeper than 100 levels.
std::vector<Statement> parse_template(std::string_view text);

}  // namespace remat::chat
