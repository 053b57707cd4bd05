#include "tokenizers/vocabulary.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tokenizers/file.h"

namespace remat::tokenizers {

void Vocabulary::add(const std::string& token, int64_t id) {
  if (id < 0 || id >= kMostIds) {
    refuse_file(file_, "the token " + shown(token) + " has the id " + std::to_string(id) + ", not one from 0 to " +
                           std::to_string(kMostIds - 1));
  }
  const auto place = static_cast<size_t>(id);
  if (place >= tokens_.size()) tokens_.resize(place + 1);
  if (tokens_[place] != nullptr) {
    refuse_file(file_, "the tokens " + shown(*tokens_[place]) + " and " + shown(token) + " have the same id, " +
                           std::to_string(id));
  }
  const auto [entry, inserted] = ids_.emplace(token, id);
  if (!inserted) {
    refuse_file(file_, "the token " + shown(token) + " is there twice, with the ids " + std::to_string(entry->second) +
                           " and " + std::to_string(id));
  }
  tokens_[place] = &entry->first;
  longest_ = std::max(longest_, token.size());
}

std::optional<int64_t> Vocabulary::id(std::string_view token) const {
  const auto entry = ids_.find(token);
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

int64_t Vocabulary::required_id(std::string_view token, const std::string& why) const {
  const auto found = id(token);
  if (!found) refuse_file(file_, "the vocabulary lacks the token " + shown(token) + ", needed " + why);
  return *found;
}

const std::string* Vocabulary::token(int64_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)] : nullptr;
}

Vocabulary read_vocabulary(const JsonNode& node) {
  Vocabulary vocabulary(node.file());
  if (!node.value().is_object()) node.refuse("is " + describe(node.value()) + ", not an object");
  for (const auto& [token, id] : node.value().get_ref<const nlohmann::json::object_t&>()) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < kMostIds;
    if (!fits)
      node.refuse("says that the id of " + shown(token) + " is " + describe(id) + ", not one from 0 to " +
                  std::to_string(kMostIds - 1));
    vocabulary.add(token, id.get<int64_t>());
  }
  return vocabulary;
}

Vocabulary read_vocabulary_lines(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  Vocabulary vocabulary(file);
  for (size_t at = 0, id = 0; at < text.size(); ++id) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string token = text.substr(at, end - at);
    if (token.ends_with('\r')) token.pop_back();
    vocabulary.add(token, static_cast<int64_t>(id));
    at = end + 1;
  }
  return vocabulary;
}

}  // namespace remat::tokenizers
