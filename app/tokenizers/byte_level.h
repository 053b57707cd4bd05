// tokenizers/byte_level.h -- GPT-2's alphabet: a printable character for every byte.
//
// Bytes that Latin-1 prints are their own characters, the others have those from U+0100 on in their order: a space is
// "Ġ", a line feed "Ċ".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace remat::tokenizers {

void append_byte_characters(std::string& text, std::string_view bytes);

/// The byte of a character, if it is one of the alphabet.
std::optional<uint8_t> byte_of_character(char32_t character);

}  // namespace remat::tokenizers
