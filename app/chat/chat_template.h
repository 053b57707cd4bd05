// chat/chat_template.h -- a model's chat template: conversations as the text that the model is given.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat/syntax.h"
#include "tokenizers/config_files.h"

namespace remat::chat {

/// What users can do where a template does what is not known here.
inline constexpr const char* kRenderBefore =
    "render the conversations with transformers' apply_chat_template(tokenize=False), and give "
    R"({"prompt": "...", "completion": "..."})";

class ChatTemplate {
 public:
  /// Of a model's directory: chat_template.jinja or, where there is none, what tokenizer_config.json says. Throws Error
  /// where there is none, or it is not known how to read it.
  explicit ChatTemplate(const std::filesystem::path& directory);

  /// As transformers' apply_chat_template(messages, tokenize=False, add_generation_prompt=...), without tools and
  /// documents; but strftime_now is undefined, so that a text is the same on any day: a template that calls it without
  /// asking whether it is defined is refused. Throws TemplateProblem.
  std::string render(const nlohmann::json& messages, bool add_generation_prompt) const;

 private:
  std::vector<Statement> statements_;
  std::map<std::string, nlohmann::json> special_tokens_;  ///< by role: "bos_token"
};

}  // namespace remat::chat
