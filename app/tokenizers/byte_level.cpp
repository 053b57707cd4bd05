#include "tokenizers/byte_level.h"

#include <array>

#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

constexpr size_t kCharacters = 0x144;  // the last is that of the soft hyphen, 0xAD

struct Alphabet {
  Alphabet() {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = printed ? byte : next++;
      append_character(characters[byte], character);
      bytes[character] = static_cast<uint8_t>(byte);
    }
  }
  std::array<std::string, 256> characters;
  std::array<std::optional<uint8_t>, kCharacters> bytes;
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

void append_byte_characters(std::string& text, std::string_view bytes) {
  const auto& characters = alphabet().characters;
  for (const char byte : bytes) text += characters[static_cast<uint8_t>(byte)];
}

std::optional<uint8_t> byte_of_character(char32_t character) {
  return character < kCharacters ? alphabet().bytes[character] : std::nullopt;
}

}  // namespace remat::tokenizers
