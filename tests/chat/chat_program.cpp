// tests/chat/chat_program.cpp -- `chat_program render DIRECTORY FILE`: for each line of JSON, {"messages": ...,
// "prompt": bool}, a line with the text as a string of JSON, or {"error": ...}. `chat_program tokens DIRECTORY FILE
// MOST`: for each example of a .jsonl file a line [[tokens], [learned]].
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "chat/chat_template.h"
#include "chat/conversations.h"
#include "tokenizers/load_tokenizer.h"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  using nlohmann::json;
  try {
    std::ifstream file(argv[3], std::ios::binary);
    if (std::string(argv[1]) == "tokens") {
      const std::string contents{std::istreambuf_iterator<char>(file), {}};
      const auto tokenizer = remat::tokenizers::load_tokenizer(argv[2]);
      const auto read = remat::chat::read_conversations(argv[3], contents, argv[2], *tokenizer, std::stoll(argv[4]));
      for (const auto& [tokens, learned] : read.examples) {
        std::cout << json({tokens, learned}) << '\n';
      }
      std::cerr << read.cut << " of " << read.lines << " are cut\n";
      return 0;
    }
    const remat::chat::ChatTemplate chat_template(argv[2]);
    for (std::string line; std::getline(file, line);) {
      const json object = json::parse(line);
      try {
        std::cout << json(chat_template.render(object["messages"], object["prompt"].get<bool>())) << '\n';
      } catch (const remat::chat::TemplateProblem& problem) {
        std::cout << json{{"error", problem.text}, {"line", problem.line}} << '\n';
      }
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
