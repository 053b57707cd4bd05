#include "chat/chat_template.h"

#include <iterator>
#include <optional>

#include <remat/error.h>

#include "chat/render.h"

namespace remat::chat {
namespace {

/// As transformers gives them to templates: without members that are null, and with what was thought under both of its
/// usual names.
nlohmann::json prepared(nlohmann::json messages) {
  for (nlohmann::json& message : messages) {
    if (!message.is_object()) continue;
    for (auto member = message.begin(); member != message.end();)
      member = member->is_null() ? message.erase(member) : std::next(member);
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      if (!message.contains(name)) continue;
      const nlohmann::json thought = message[name];
      message["reasoning_content"] = thought;
      if (!message.contains("thinking")) message["thinking"] = thought;
      break;
    }
  }
  return messages;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::filesystem::path& directory) {
  const tokenizers::ConfigFiles config(directory);
  const auto found = config.chat_template();
  if (!found) {
    throw Error("[chat] '" + directory.string() +
                "' has no chat template, neither in tokenizer_config.json nor as chat_template.jinja: it may be a base "
                R"(model; take one that was made for chats, or give {"prompt": "...", "completion": "..."})");
  }
  try {
    statements_ = parse_template(found->text);
  } catch (const TemplateProblem& problem) {
    throw Error("[chat] '" + found->file.string() + "': line " + std::to_string(problem.line) +
                " of the chat template: " + problem.text + "; " + kRenderBefore);
  }
  const tokenizers::SpecialNames names =
      config.special_names(config.names_of_class().value_or(tokenizers::SpecialNames()));
  const auto add = [&](const char* role, const std::optional<std::string>& token) {
    if (token) special_tokens_[role] = *token;
  };
  add("bos_token", names.bos);
  add("eos_token", names.eos);
  add("unk_token", names.unk);
  add("sep_token", names.sep);
  add("pad_token", names.pad);
  add("cls_token", names.cls);
  add("mask_token", names.mask);
}

std::string ChatTemplate::render(const nlohmann::json& messages, bool add_generation_prompt) const {
  auto variables = special_tokens_;
  variables["messages"] = prepared(messages);
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  return chat::render(statements_, variables);
}

}  // namespace remat::chat
