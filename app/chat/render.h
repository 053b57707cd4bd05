// chat/render.h -- the text that a chat template makes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chat/syntax.h"
#include "chat/values.h"

namespace remat::chat {

/// Throws TemplateProblem where the template refuses by raise_exception(), does what is not known here, or does not
/// end within ten million operations and kMostBytes.
std::string render(const std::vector<Statement>& statements, const std::map<std::string, Value>& variables);

}  // namespace remat::chat
