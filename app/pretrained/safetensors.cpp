#include "pretrained/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarType.h>
#include <remat/error.h>
#include <nlohmann/json.hpp>

#include <remat/support/replacement_file.h>
#include "common/json_object.h"

namespace remat::pretrained {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr int64_t kMostHeaderBytes = 100'000'000;
constexpr int64_t kPieceBytes = int64_t{1} << 30;  // one call of read() gives at most 2 GiB
constexpr size_t kMostHeaderDepth = 3;             // the header, a tensor, its shape
constexpr size_t kAlignment = 8;                   // of the bytes behind the header
constexpr const char* kMetadata = "__metadata__";

struct TypeName {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array<TypeName, 19> kTypes = {{{"F64", at::kDouble},
                                              {"F32", at::kFloat},
                                              {"F16", at::kHalf},
                                              {"BF16", at::kBFloat16},
                                              {"I64", at::kLong},
                                              {"I32", at::kInt},
                                              {"I16", at::kShort},
                                              {"I8", at::kChar},
                                              {"U8", at::kByte},
                                              {"BOOL", at::kBool},
                                              {"U16", at::ScalarType::UInt16},
                                              {"U32", at::ScalarType::UInt32},
                                              {"U64", at::ScalarType::UInt64},
                                              {"C64", at::kComplexFloat},
                                              {"F8_E4M3", at::ScalarType::Float8_e4m3fn},
                                              {"F8_E5M2", at::ScalarType::Float8_e5m2},
                                              {"F8_E4M3FNUZ", at::ScalarType::Float8_e4m3fnuz},
                                              {"F8_E5M2FNUZ", at::ScalarType::Float8_e5m2fnuz},
                                              {"F8_E8M0", at::ScalarType::Float8_e8m0fnu}}};

std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// Reads exactly `bytes` bytes from `offset` on; false with the reason in errno, 0 where the file ends before.
bool read_at(int file, void* to, int64_t bytes, int64_t offset) {
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file, next, static_cast<size_t>(std::min(bytes, kPieceBytes)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    next += got;
    offset += got;
    bytes -= got;
  }
  return true;
}

std::string reason() { return errno == 0 ? "the file ends before" : std::strerror(errno); }

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw Error("[safetensors] '" + path + "' " + problem + "; get the file again");
}

bool is_size(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
}

TensorEntry parse_entry(const std::string& path, const std::string& name, const nlohmann::json& json) {
  const auto fail = [&](const std::string& problem) { refuse(path, "has a tensor '" + name + "' " + problem); };
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    fail("without dtype, shape and data_offsets");
  }
  const auto& [type, shape, offsets] = std::tie(json["dtype"], json["shape"], json["data_offsets"]);
  if (!type.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    fail("whose dtype is no string, or whose shape or data_offsets are no lists");
  }
  TensorEntry entry;
  const auto* const known = std::ranges::find(kTypes, type.get<std::string>(), &TypeName::name);
  if (known == kTypes.end()) fail("of type " + type.get<std::string>() + ", which is not known here");
  entry.type = known->type;
  std::optional<int64_t> bytes = static_cast<int64_t>(c10::elementSize(entry.type));
  for (const auto& size : shape) {
    if (!is_size(size)) fail("whose shape has " + size.dump());
    entry.shape.push_back(size.get<int64_t>());
    if (bytes) bytes = product(*bytes, entry.shape.back());
  }
  if (!is_size(offsets[0]) || !is_size(offsets[1])) fail("with data_offsets " + offsets.dump());
  entry.begin = offsets[0].get<int64_t>();
  entry.bytes = offsets[1].get<int64_t>() - entry.begin;
  if (!bytes || *bytes != entry.bytes) {
    fail("of shape " + shape.dump() + " and type " + type.get<std::string>() + ", which " +
         std::to_string(entry.bytes) + " bytes cannot hold");
  }
  return entry;
}

nlohmann::json parse_header(const std::string& path, const std::string& header) {
  try {
    return common::read_json_object(header, kMostHeaderDepth);
  } catch (const common::JsonProblem& problem) {
    refuse(path, "has a header that " + problem.text);
  }
}

/// Offsets are counted from the end of the header until here.
void check_layout(const std::string& path, const std::map<std::string, TensorEntry>& entries, int64_t bytes) {
  std::vector<const TensorEntry*> in_order;
  in_order.reserve(entries.size());
  for (const auto& [name, entry] : entries) in_order.push_back(&entry);
  std::ranges::sort(in_order, [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->bytes) < std::pair(b->begin, b->bytes);
  });
  int64_t end = 0;
  for (const TensorEntry* const entry : in_order) {
    if (entry->begin != end) refuse(path, "has tensors that overlap or leave gaps at byte " + std::to_string(end));
    end += entry->bytes;
  }
  if (end != bytes) {
    refuse(path, "has " + std::to_string(bytes) + " bytes behind its header, its tensors need " + std::to_string(end));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  struct stat status {};
  if (file_ < 0 || fstat(file_, &status) != 0) {
    const std::string why = std::strerror(errno);
    if (file_ >= 0) close(file_);
    throw Error("[safetensors] cannot read '" + path + "' (" + why + "); check the path");
  }
  try {
    if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file");
    uint64_t size = 0;
    if (!read_at(file_, &size, sizeof size, 0)) refuse(path, "has no header (" + reason() + ")");
    const int64_t behind = static_cast<int64_t>(status.st_size) - static_cast<int64_t>(sizeof size);
    if (size > static_cast<uint64_t>(std::min(behind, kMostHeaderBytes))) {
      refuse(path, "says that its header has " + std::to_string(size) + " bytes, and has " + std::to_string(behind) +
                       " (at most " + std::to_string(kMostHeaderBytes) + " are allowed)");
    }
    const auto header_bytes = static_cast<int64_t>(size);
    std::string header(size, '\0');
    if (!read_at(file_, header.data(), header_bytes, sizeof size)) refuse(path, "cannot be read (" + reason() + ")");
    const auto json = parse_header(path, header);
    for (const auto& [name, value] : json.items()) {
      if (name != kMetadata) entries_.emplace(name, parse_entry(path, name, value));
    }
    check_layout(path, entries_, behind - header_bytes);
    for (auto& [name, entry] : entries_) entry.begin += static_cast<int64_t>(sizeof size) + header_bytes;
  } catch (...) {
    close(file_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { close(file_); }

at::Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse(path_, "has no tensor '" + name + "'");
  const TensorEntry& entry = found->second;
  const auto options = at::TensorOptions().dtype(entry.type);
  // Strides of an empty tensor mean nothing, and those of its shape may be more than a number can say.
  if (entry.bytes == 0) return at::empty_strided(entry.shape, std::vector<int64_t>(entry.shape.size(), 1), options);
  at::Tensor tensor = at::empty(entry.shape, options);
  if (!read_at(file_, tensor.mutable_data_ptr(), entry.bytes, entry.begin)) {
    refuse(path_, "gave less than all of tensor '" + name + "' (" + reason() + ")");
  }
  return tensor;
}

bool write_safetensors(support::ReplacementFile& file, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  nlohmann::ordered_json header = {{kMetadata, {{"format", "pt"}}}};
  int64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* const type = std::ranges::find(kTypes, tensor.scalar_type(), &TypeName::type);
    if (type == kTypes.end()) {
      throw Error("[safetensors] tensor '" + name + "' is of type " + c10::toString(tensor.scalar_type()) +
                  ", which the format does not have; convert it");
    }
    const auto begin = end;
    end += static_cast<int64_t>(tensor.numel() * tensor.element_size());
    header[name] = {{"dtype", type->name}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const uint64_t size = text.size();

  if (!file.write(&size, sizeof size) || !file.write(text.data(), text.size())) return false;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor host = tensor.detach().cpu().contiguous();
    if (!file.write(host.const_data_ptr(), host.nbytes())) return false;  // at once: errno says why
  }
  return true;
}

void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  support::ReplacementFile file;
  if (file.open(path) && write_safetensors(file, tensors) && file.commit()) return;
  throw Error("[safetensors] cannot write '" + path + "' (" + std::strerror(errno) +
              "); what was there before is unchanged");
}

}  // namespace remat::pretrained
