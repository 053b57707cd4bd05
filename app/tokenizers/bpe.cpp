#include "tokenizers/bpe.h"

#include <cstdio>
#include <limits>
#include <queue>

#include <remat/error.h>

#include "tokenizers/file.h"
#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

constexpr int32_t kNone = -1;

uint64_t pair_of(int64_t left, int64_t right) {
  return (static_cast<uint64_t>(left) << 32U) | static_cast<uint64_t>(right);
}

std::string byte_token(uint8_t byte) {
  char text[7];
  std::snprintf(text, sizeof text, "<0x%02X>", byte);
  return text;
}

}  // namespace

/// The tokens of a word as a linked list in one array. A merge leaves its token in the place of the left one.
class Bpe::Word {
 public:
  struct Symbol {
    int32_t id;
    int32_t before, after;  // places, or kNone
    bool merged;            // into the one before
  };

  void add(int64_t id) {
    const auto place = static_cast<int32_t>(symbols_.size());
    if (place > 0) symbols_.back().after = place;
    symbols_.push_back({static_cast<int32_t>(id), place - 1, kNone, false});
  }

  int32_t size() const { return static_cast<int32_t>(symbols_.size()); }
  Symbol& operator[](int32_t place) { return symbols_[static_cast<size_t>(place)]; }

  void merge_with_next(int32_t place, int32_t id) {
    Symbol& left = (*this)[place];
    Symbol& right = (*this)[left.after];
    left.id = id;
    left.after = right.after;
    right.merged = true;
    if (right.after != kNone) (*this)[right.after].before = place;
  }

  void append_ids(std::vector<int64_t>& ids) const {
    for (const Symbol& symbol : symbols_) {
      if (!symbol.merged) ids.push_back(symbol.id);
    }
  }

 private:
  std::vector<Symbol> symbols_;
};

size_t Bpe::PairHash::operator()(uint64_t pair) const {
  const uint64_t product = pair * 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
  return product ^ (product >> 32U);
}

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options) : Model(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.unknown_token) {
    unknown_id_ = this->vocabulary().required_id(*options_.unknown_token, "for unknown characters");
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = this->vocabulary().id(byte_token(static_cast<uint8_t>(byte)));
  }
}

void Bpe::add_merge(std::string_view left, std::string_view right) {
  const auto rank = static_cast<int32_t>(merges_.size());
  const std::string why = "by merge " + std::to_string(rank);
  const int64_t left_id = vocabulary().required_id(left, why);
  const int64_t right_id = vocabulary().required_id(right, why);
  if (!right.starts_with(options_.continuation_prefix)) {
    refuse_file(vocabulary().file(), "merge " + std::to_string(rank) + " has " + shown(right) +
                                         " on its right, which " + "does not begin with " +
                                         shown(options_.continuation_prefix));
  }
  const std::string merged = std::string(left) + std::string(right.substr(options_.continuation_prefix.size()));
  const auto id = static_cast<int32_t>(vocabulary().required_id(merged, why));
  if (!merges_.try_emplace(pair_of(left_id, right_id), MergedPair{rank, id}).second) {
    refuse_file(vocabulary().file(),
                "merge " + std::to_string(rank) + ", of " + shown(left) + " and " + shown(right) + ", is there twice");
  }
}

void Bpe::encode_word(std::string_view text, std::vector<int64_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary().id(text)) return ids.push_back(*id);
  }
  if (text.size() > std::numeric_limits<int32_t>::max()) {
    throw Error("[tokenizer] a word has " + std::to_string(text.size()) +
                " bytes, and at most 2147483647 can be; give the text in pieces");
  }
  Word word;
  split(text, word);
  merge_all(word);
  word.append_ids(ids);
}

std::optional<int64_t> Bpe::character_id(std::string_view character, bool first, bool last) const {
  if (options_.continuation_prefix.empty() && options_.end_suffix.empty()) return vocabulary().id(character);
  return vocabulary().id((first ? "" : options_.continuation_prefix) + std::string(character) +
                         (last ? options_.end_suffix : ""));
}

void Bpe::split(std::string_view text, Word& word) const {
  bool unknown = false;  // a character before was, and its token is not added yet
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    next_character(text, end);
    const std::string_view character = text.substr(begin, end - begin);
    if (const auto id = character_id(character, begin == 0, end == text.size())) {
      if (unknown) word.add(*unknown_id_);
      unknown = false;
      word.add(*id);
      continue;
    }
    // As in transformers, an unknown token that waits comes after these bytes.
    if (options_.byte_fallback && add_bytes(character, word)) continue;
    if (!unknown_id_) continue;
    if (unknown && !options_.fuse_unknown) word.add(*unknown_id_);
    unknown = true;
  }
  if (unknown) word.add(*unknown_id_);
}

bool Bpe::add_bytes(std::string_view text, Word& word) const {
  for (const char byte : text) {
    if (!byte_ids_[static_cast<uint8_t>(byte)]) return false;
  }
  for (const char byte : text) word.add(*byte_ids_[static_cast<uint8_t>(byte)]);
  return true;
}

const Bpe::MergedPair* Bpe::find_merge(int64_t left, int64_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::merge_all(Word& word) const {
  struct Candidate {
    int32_t rank, place, id;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later);
  const auto consider = [&](int32_t place) {
    if (place == kNone || word[place].after == kNone) return;
    if (const auto* merge = find_merge(word[place].id, word[word[place].after].id)) {
      queue.push({merge->rank, place, merge->id});
    }
  };
  for (int32_t place = 0; place + 1 < word.size(); ++place) consider(place);
  while (!queue.empty()) {
    const Candidate next = queue.top();
    queue.pop();
    const auto symbol = word[next.place];
    if (symbol.merged || symbol.after == kNone) continue;
    // Its neighbours may have changed since. As in transformers, another pair that makes the same token will do.
    const auto* merge = find_merge(symbol.id, word[symbol.after].id);
    if (merge == nullptr || merge->id != next.id) continue;
    word.merge_with_next(next.place, next.id);
    consider(word[next.place].before);
    consider(next.place);
  }
}

}  // namespace remat::tokenizers
