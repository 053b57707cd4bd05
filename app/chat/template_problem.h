// chat/template_problem.h -- what is thrown where a chat template makes no text.
#pragma once

#include <cstdint>
#include <string>

namespace remat::chat {

/// Why a template cannot be read, or not be rendered with what it was given.
struct TemplateProblem {
  std::string text;
  int64_t line = 0;        ///< of the template, from 1
  bool by_author = false;  ///< the template itself refuses, by raise_exception()
};

}  // namespace remat::chat
