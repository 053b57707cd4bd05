// tokenizers/vocabulary.h -- tokens and their ids, one to one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/json_file.h"

namespace remat::tokenizers {

/// Ids are below it: there is memory for every id.
constexpr int64_t kMostIds = int64_t{1} << 22U;

/// For maps with strings as keys that are looked up by views.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

class Vocabulary {
 public:
  /// `file`: for messages.
  explicit Vocabulary(std::filesystem::path file) : file_(std::move(file)) {}
  Vocabulary(Vocabulary&&) = default;

  /// Throws Error where the token has an id already, the id a token, or the id is out of range.
  void add(const std::string& token, int64_t id);

  std::optional<int64_t> id(std::string_view token) const;
  /// The id of a token that the file needs to have. Throws Error where it does not; `why`: "as merges[3]".
  int64_t required_id(std::string_view token, const std::string& why) const;
  /// Null where no token has the id.
  const std::string* token(int64_t id) const;

  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// Bytes of the longest token.
  size_t longest() const { return longest_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  StringMap<int64_t> ids_;
  std::vector<const std::string*> tokens_;  // by id: the keys of ids_, which do not move
  size_t longest_ = 0;
};

/// Of a JSON object from token to id.
Vocabulary read_vocabulary(const JsonNode& node);

/// Of a text with a token on every line; its id is the number of the line, from 0.
Vocabulary read_vocabulary_lines(const std::filesystem::path& file);

}  // namespace remat::tokenizers
