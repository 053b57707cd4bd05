#include "chat/conversations.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "chat/chat_template.h"
#include "data/file_error.h"
#include "data/jsonl.h"

namespace remat::chat {
namespace {

using nlohmann::json;
using Tokens = std::vector<int64_t>;

constexpr const char* kForm =
    R"(write {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]} or )"
    R"({"prompt": "...", "completion": "..."})";

/// How many tokens both begin with.
size_t common(const Tokens& a, const Tokens& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

class Reader {
 public:
  Reader(const std::string& path, std::string_view contents, std::filesystem::path directory,
         const tokenizers::Tokenizer& tokenizer, int64_t most)
      : path_(path),
        lines_(path, contents, kForm),
        directory_(std::move(directory)),
        tokenizer_(tokenizer),
        most_(most) {}

  Conversations run() {
    json object;
    while (lines_.next(object)) {
      const size_t before = result_.examples.size();
      cut_ = false;
      if (object.contains("messages")) {
        add_conversation(object);
      } else if (object.contains("prompt") && object.contains("completion")) {
        add_completion(text(object, "prompt"), text(object, "completion"));
      } else {
        refuse(std::string("there is neither \"messages\" nor \"prompt\" with \"completion\"; ") + kForm);
      }
      ++result_.lines;
      result_.cut += cut_ ? 1 : 0;
      if (result_.examples.size() == before) note_behind();
    }
    if (behind_ > 0) refuse_behind();
    if (result_.examples.empty()) data::refuse_file(path_, std::string("has no examples; ") + kForm);
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { data::refuse_line(path_, lines_.line(), problem); }

  const std::string& text(const json& object, const char* name) const {
    const json& value = object.at(name);
    if (!value.is_string()) refuse(std::string("\"") + name + "\" is " + value.type_name() + "; write a string");
    return value.get_ref<const std::string&>();
  }

  void check(const json& object) const {
    for (const char* name : {"tools", "documents"}) {
      if (object.contains(name) && !object[name].is_null())
        refuse(std::string("\"") + name + "\" cannot be rendered here; " + kRenderBefore);
    }
    const json& messages = object["messages"];
    if (!messages.is_array() || messages.empty()) refuse(std::string("\"messages\" is no list of messages; ") + kForm);
    for (const json& message : messages) {
      if (!message.is_object() || !message.contains("role") || !message.contains("content"))
        refuse(std::string("a message has no \"role\" or no \"content\"; ") + kForm);
      text(message, "role");
      text(message, "content");
    }
  }

  std::string render(const json& messages, size_t count, bool add_generation_prompt) {
    if (!template_) template_.emplace(directory_);
    try {
      return template_->render(json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)),
                               add_generation_prompt);
    } catch (const TemplateProblem& problem) {
      if (problem.by_author) refuse("the model's chat template refuses it: " + problem.text + "; change the messages");
      refuse("line " + std::to_string(problem.line) + " of the model's chat template: " + problem.text + "; " +
             kRenderBefore);
    }
  }

  void add_conversation(const json& object) {
    check(object);
    const json& messages = object["messages"];
    std::vector<size_t> answers;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i]["role"] == "assistant") answers.push_back(i);
    }
    if (answers.empty()) refuse(R"(no message has the role "assistant", whose answers are learned; add one)");
    if (answers.back() + 1 < messages.size())
      refuse(R"(the last message is none of the role "assistant"; leave out what follows the last answer)");
    if (std::optional<LearnedTokens> all = tokens_of(messages, answers)) {
      add(*std::move(all));
      return;
    }
    for (const size_t answer : answers) {
      const json until(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(answer + 1));
      std::optional<LearnedTokens> one = tokens_of(until, {answer});
      if (!one)
        refuse(std::string("the chat template has another text before an answer than without it; ") + kRenderBefore);
      if (!add(*std::move(one))) return;  // nor do those that follow begin earlier
    }
  }

  /// Nothing where the text of all messages does not have those of the first ones at its beginning.
  std::optional<LearnedTokens> tokens_of(const json& messages, const std::vector<size_t>& answers) {
    const std::string text = render(messages, messages.size(), false);
    LearnedTokens result{.tokens = tokenizer_.encode(text), .learned = {}};
    result.learned.resize(result.tokens.size(), false);
    for (const size_t answer : answers) {
      const std::string before = render(messages, answer, true);
      std::string until = render(messages, answer + 1, false);
      // A template may end every text with a token, as Phi 3's does.
      const std::string end = eos();
      if (!text.starts_with(until) && until.ends_with(end)) until.resize(until.size() - end.size());
      if (!text.starts_with(before) || !text.starts_with(until) || until.size() <= before.size()) return std::nullopt;
      const size_t begin = common(tokenizer_.encode(before), result.tokens);
      const size_t last = common(tokenizer_.encode(until), result.tokens);
      std::fill(result.learned.begin() + static_cast<std::ptrdiff_t>(std::min(begin, last)),
                result.learned.begin() + static_cast<std::ptrdiff_t>(last), true);
      if (begin < last && std::cmp_greater_equal(begin, most_)) break;  // what follows is cut off
    }
    return result;
  }

  std::string eos() const {
    const auto id = tokenizer_.special_ids().eos;
    return id ? tokenizer_.decode({*id}) : "";
  }

  void add_completion(const std::string& prompt, const std::string& completion) {
    const auto& special = tokenizer_.special_ids();
    const auto encode = [&](const std::string& part) {
      Tokens tokens = tokenizer_.encode_with_special_tokens(part);
      // A text that was rendered may begin with it.
      if (special.bos && tokens.size() > 1 && tokens[0] == *special.bos && tokens[1] == *special.bos)
        tokens.erase(tokens.begin());
      return tokens;
    };
    const auto ends = [&](const Tokens& tokens) { return !tokens.empty() && tokens.back() == *special.eos; };
    LearnedTokens result{.tokens = encode(prompt + completion), .learned = {}};
    Tokens before = encode(prompt);
    if (special.eos) {
      std::string text = prompt + completion;
      text.resize(text.find_last_not_of(" \t\r\n") + 1);
      const bool said = !eos().empty() && text.ends_with(eos());
      if (!said && !ends(result.tokens)) result.tokens.push_back(*special.eos);
      if (ends(before) && !ends(tokenizer_.encode(prompt))) before.pop_back();  // it was put behind the prompt
    }
    result.learned.resize(result.tokens.size(), false);
    std::fill(result.learned.begin() + static_cast<std::ptrdiff_t>(common(before, result.tokens)), result.learned.end(),
              true);
    add(std::move(result));
  }

  /// Whether any of it is learned within the tokens that are taken; else where that begins is kept in `begin_`.
  bool add(LearnedTokens example) {
    if (!example.learned.empty()) example.learned[0] = false;  // nothing comes before it
    const auto learned = std::ranges::find(example.learned, true) - example.learned.begin();
    if (learned == std::ssize(example.learned)) refuse("there is no token to be learned; give an answer");
    cut_ = cut_ || std::ssize(example.tokens) > most_;
    if (learned >= most_) {
      begin_ = learned + 1;
      return false;
    }
    const auto size = static_cast<size_t>(std::min<int64_t>(most_, std::ssize(example.tokens)));
    example.tokens.resize(size);
    example.learned.resize(size);
    result_.examples.push_back(std::move(example));
    return true;
  }

  /// Of a line of which nothing is learned.
  void note_behind() {
    if (behind_++ == 0) first_behind_ = {lines_.line(), begin_};
    needed_ = std::max(needed_, begin_);
  }

  /// When all lines are read: how many they are, and what all of them need, is known then.
  [[noreturn]] void refuse_behind() const {
    const std::string others = behind_ == 1 ? "" : ", as those of " + std::to_string(behind_) + " lines do";
    data::refuse_line(path_, first_behind_.first,
                      "the first answer begins at token " + std::to_string(first_behind_.second) + ", behind the " +
                          std::to_string(most_) + " of --seq" + others + "; raise it to " + std::to_string(needed_) +
                          " or more, or leave " + (behind_ == 1 ? "the line" : "these lines") + " out");
  }

  const std::string& path_;
  data::JsonlReader lines_;
  std::filesystem::path directory_;
  const tokenizers::Tokenizer& tokenizer_;
  int64_t most_;
  std::optional<ChatTemplate> template_;
  Conversations result_;
  bool cut_ = false;   ///< something of this line is not learned
  int64_t begin_ = 0;  ///< of this line's first answer, from 1, where that is behind `most_`
  int64_t behind_ = 0, needed_ = 0;
  std::pair<int64_t, int64_t> first_behind_;  ///< the line and its answer's beginning
};

}  // namespace

Conversations read_conversations(const std::string& path, std::string_view contents,
                                 const std::filesystem::path& directory, const tokenizers::Tokenizer& tokenizer,
                                 int64_t most) {
  return Reader(path, contents, directory, tokenizer, most).run();
}

}  // namespace remat::chat
