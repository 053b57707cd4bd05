// tokenizers/file.h -- the files of a tokenizer, which may be damaged or hostile.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace remat::tokenizers {

/// Throws Error: "[tokenizer] 'file': what; remedy".
[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& what,
                              const std::string& remedy = "fetch the file again, or save the tokenizer again");

/// The contents of a regular file. Throws Error for what cannot be read or has more than 128 MiB.
std::string read_file(const std::filesystem::path& file);

/// The same of a text, which must be UTF-8.
std::string read_text_file(const std::filesystem::path& file);

/// A string of a file as messages show it: not more than the beginning.
std::string shown(std::string_view text);

}  // namespace remat::tokenizers
