#include "cli/model_contents.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "cli/fingerprint.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 11> kWholeFiles = {"config.json",
                                                          "model.safetensors.index.json",
                                                          "tokenizer.json",
                                                          "tokenizer_config.json",
                                                          "special_tokens_map.json",
                                                          "added_tokens.json",
                                                          "vocab.txt",
                                                          "vocab.json",
                                                          "merges.txt",
                                                          "tokenizer.model",
                                                          "preprocessor_config.json"};
constexpr uintmax_t kPieceBytes = 64 << 10;
constexpr uintmax_t kPieces = 64;  // of a file of weights; its header is in the first ones

/// The whole file where it has no more bytes than all pieces, else pieces at equal distances.
std::string sampled(const fs::path& path, bool whole) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "none";
  const uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  const bool all = whole || size <= kPieces * kPieceBytes;
  const uintmax_t pieces = all ? (size + kPieceBytes - 1) / kPieceBytes : kPieces;
  std::string digits = std::to_string(size);
  std::vector<char> piece(kPieceBytes);
  for (uintmax_t i = 0; i < pieces; ++i) {
    file.seekg(static_cast<std::streamoff>(all ? i * kPieceBytes : (size - kPieceBytes) / (kPieces - 1) * i));
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    digits += ' ';
    digits += fingerprint(std::string_view(piece.data(), static_cast<size_t>(file.gcount())));
    file.clear();
  }
  return digits;
}

}  // namespace

std::string model_contents(const std::string& directory) {
  std::string list;
  const auto add = [&](const fs::path& path, bool whole) {
    list += path.filename().string() + ": " + sampled(path, whole) + '\n';
  };
  for (const std::string_view name : kWholeFiles) add(fs::path(directory) / name, /*whole=*/true);
  std::vector<fs::path> weights;
  std::error_code error;
  for (fs::directory_iterator file(directory, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (file->path().extension() == ".safetensors") weights.push_back(file->path());
  }
  std::ranges::sort(weights);
  for (const auto& path : weights) add(path, /*whole=*/false);
  return fingerprint(list);
}

}  // namespace remat::cli
