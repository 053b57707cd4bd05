#include "cli/checkpoint_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <remat/error.h>

#include "cli/replacement_file.h"
#include "cli/special_file.h"

namespace remat::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint32_t kVersion = 1;
constexpr char kBegin[8] = {'r', 'e', 'm', 'a', 't', 'c', 'k', 'p'};
constexpr char kEnd[8] = {'r', 'e', 'm', 'a', 't', 'e', 'n', 'd'};

struct Header {
  char begin[8];
  uint32_t version;
  uint32_t about_size;
};

struct Trailer {
  uint64_t payload_size;
  uint64_t hash_low, hash_high;
  char end[8];
};

std::string system_error() { return std::strerror(errno); }

[[noreturn]] void damaged(const std::string& path, const std::string& how) {
  throw Error("[checkpoint] '" + path + "' is damaged: " + how +
              "; use another checkpoint, or start anew without --resume");
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void update(const void* data, size_t size) { XXH3_128bits_update(state_, data, size); }
  XXH128_hash_t digest() const { return XXH3_128bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

}  // namespace

struct CheckpointWriter::Impl {
  ReplacementFile file;
  Hash hash;
  uint64_t payload_size = 0;

  [[noreturn]] void fail(const char* what) const {
    throw Error("[checkpoint] " + std::string(what) + " '" + file.part() + "' failed (" + system_error() +
                "); an earlier checkpoint is untouched; free some space or give another path with --checkpoint");
  }

  void write(const void* data, size_t size) {
    if (!file.write(data, size)) fail("writing");
  }

  void write_hashed(const void* data, size_t size) {
    write(data, size);
    hash.update(data, size);
  }
};

CheckpointWriter::CheckpointWriter(const std::string& path, const nlohmann::json& about)
    : impl_(std::make_unique<Impl>()) {
  if (!impl_->file.open(path)) {
    throw Error("[checkpoint] cannot write '" + path + "' (" + system_error() +
                "); an earlier checkpoint is untouched; give another path with --checkpoint");
  }
  const auto text = about.dump();
  Header header{{}, kVersion, static_cast<uint32_t>(text.size())};
  std::memcpy(header.begin, kBegin, sizeof kBegin);
  impl_->write_hashed(&header, sizeof header);
  impl_->write_hashed(text.data(), text.size());
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::append(const void* data, size_t size) {
  impl_->write_hashed(data, size);
  impl_->payload_size += size;
}

void CheckpointWriter::commit() {
  const auto hash = impl_->hash.digest();
  Trailer trailer{impl_->payload_size, hash.low64, hash.high64, {}};
  std::memcpy(trailer.end, kEnd, sizeof kEnd);
  impl_->write(&trailer, sizeof trailer);
  if (!impl_->file.commit()) impl_->fail("putting in its place");
}

CheckpointReader::CheckpointReader(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (file_ < 0) {
    const bool missing = errno == ENOENT;
    throw Error("[checkpoint] cannot open '" + path + "' (" + system_error() + "); " +
                (missing ? "check the path, or start anew without --resume" : "check its permissions"));
  }
  struct stat status;
  if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file_);
    throw Error("[checkpoint] '" + path + "' is not a regular file; give the path of a checkpoint");
  }
  try {
    verify(static_cast<size_t>(status.st_size));
  } catch (...) {
    close(file_);
    throw;
  }
}

CheckpointReader::~CheckpointReader() { close(file_); }

void CheckpointReader::verify(size_t file_size) {
  Header header;
  if (file_size < sizeof header || read_file(0, &header, sizeof header) < sizeof header ||
      std::memcmp(header.begin, kBegin, sizeof kBegin) != 0) {
    throw Error("[checkpoint] '" + path_ + "' is not a checkpoint of remat; give the path of one");
  }
  if (header.version != kVersion) {
    throw Error("[checkpoint] '" + path_ + "' has format version " + std::to_string(header.version) +
                ", this program reads " + std::to_string(kVersion) + "; use the version of remat that wrote it");
  }
  Trailer trailer;
  payload_begin_ = sizeof header + header.about_size;
  const bool room = file_size >= payload_begin_ + sizeof trailer;
  if (!room || read_file(file_size - sizeof trailer, &trailer, sizeof trailer) < sizeof trailer ||
      std::memcmp(trailer.end, kEnd, sizeof kEnd) != 0) {
    damaged(path_,
            "its " + std::to_string(file_size) + " bytes do not end as a checkpoint does: it was cut, or added to");
  }
  payload_size_ = file_size - payload_begin_ - sizeof trailer;
  if (trailer.payload_size != payload_size_) {
    damaged(path_, "it holds " + std::to_string(payload_size_) + " bytes of " + std::to_string(trailer.payload_size));
  }
  Hash hash;
  std::vector<char> buffer(1 << 20);
  for (size_t at = 0, end = file_size - sizeof trailer; at < end;) {
    const size_t count = read_file(at, buffer.data(), std::min(buffer.size(), end - at));
    if (count == 0) damaged(path_, "reading stops after " + std::to_string(at) + " bytes");
    hash.update(buffer.data(), count);
    at += count;
  }
  const auto digest = hash.digest();
  if (digest.low64 != trailer.hash_low || digest.high64 != trailer.hash_high) damaged(path_, "its checksum is wrong");
  std::string text(header.about_size, '\0');
  read_file(sizeof header, text.data(), text.size());
  about_ = nlohmann::json::parse(text);
}

size_t CheckpointReader::read(size_t offset, void* data, size_t size) const {
  if (offset >= payload_size_) return 0;
  return read_file(payload_begin_ + offset, data, std::min(size, payload_size_ - offset));
}

size_t CheckpointReader::read_file(size_t offset, void* data, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const auto count = pread(file_, static_cast<char*>(data) + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("[checkpoint] reading '" + path_ + "' failed (" + system_error() + "); check the disk");
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void check_checkpoint_path(const std::string& path) {
  if (is_special_file(path)) {
    throw Error("[checkpoint] '" + path + "' is not a regular file; give another path with --checkpoint");
  }
  CheckpointWriter trial(path, {});  // removed again: it is never committed
}

}  // namespace remat::cli
