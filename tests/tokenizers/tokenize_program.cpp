// tests/tokenizers/tokenize_program.cpp -- `tokenize_program ids|special|each|decode DIRECTORY FILE`: the token ids of
// a text on lines of their own, a line with the ids of each of the texts between which NUL bytes stand, or the text of
// ids.
//
// The seconds that encoding takes go to standard error.
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "tokenizers/load_tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string what = argv[1];
  try {
    const auto tokenizer = remat::tokenizers::load_tokenizer(argv[2]);
    std::ifstream file(argv[3], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (what == "decode") {
      std::istringstream stream(text);
      const std::vector<int64_t> ids{std::istream_iterator<int64_t>(stream), {}};
      std::cout << tokenizer->decode(ids);
      return 0;
    }
    if (what == "each") {
      std::istringstream stream(text);
      for (std::string part; std::getline(stream, part, '\0');) {
        for (const int64_t id : tokenizer->encode(part)) std::cout << id << ' ';
        std::cout << '\n';
      }
      return 0;
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = what == "special" ? tokenizer->encode_with_special_tokens(text) : tokenizer->encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    for (const int64_t id : ids) std::cout << id << '\n';
    std::cerr << seconds.count() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
