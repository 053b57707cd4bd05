#include "chat/chat_template.h"

#include <optional>

#include <remat/error.h>

#include "chat/render.h"

namespace remat::chat {

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
  const tokenizers::SpecialNames names = config.special_names({});
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
  variables["messages"] = messages;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  return chat::render(statements_, variables);
}

}  // namespace remat::chat
