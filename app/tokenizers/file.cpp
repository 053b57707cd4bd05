#include "tokenizers/file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <system_error>

#include <remat/error.h>

#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

namespace fs = std::filesystem;

// Four times the largest vocabulary that is published.
constexpr uintmax_t kMostBytes = uintmax_t{128} << 20U;

}  // namespace

void refuse_file(const fs::path& file, const std::string& what, const std::string& remedy) {
  throw Error("[tokenizer] '" + file.string() + "': " + what + "; " + remedy);
}

std::string read_file(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw Error("[tokenizer] '" + file.string() + "' is not a regular file" +
                (error ? " (" + error.message() + ")" : "") + "; give the directory of a model from Hugging Face");
  }
  const auto size = fs::file_size(file, error);
  if (!error && size > kMostBytes) {
    refuse_file(file,
                "has " + std::to_string(size) + " bytes, and at most " + std::to_string(kMostBytes) + " are read");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(error ? 0 : size, '\0');
  if (!stream || error || !stream.read(text.data(), static_cast<std::streamsize>(size))) {
    throw Error("[tokenizer] cannot read '" + file.string() + "' (" + std::strerror(errno) +
                "); check its permissions and the disk");
  }
  return text;
}

std::string read_text_file(const fs::path& file) {
  std::string text = read_file(file);
  if (!is_well_formed(text)) refuse_file(file, "is not UTF-8");
  return text;
}

std::string shown(std::string_view text) {
  constexpr size_t most = 60;
  if (text.size() <= most) return "\"" + std::string(text) + "\"";
  size_t end = 0;
  for (size_t next = 0; next <= most; next_character(text, next)) end = next;
  return "\"" + std::string(text.substr(0, end)) + "...\" (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace remat::tokenizers
