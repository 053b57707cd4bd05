#include "device/file_blocks.h"

#include <utility>

#include <sys/mman.h>

namespace remat::memory {
namespace {

/// In front of the tensor's bytes, so that these begin where a page does.
constexpr size_t kHeaderBytes = 4096;

thread_local std::weak_ptr<FileBlockSource> t_source;

struct Header {
  size_t mapped;  ///< bytes, this page included
};

Header* header_of(void* data) noexcept { return reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes); }

void release_file_block(void* data) {
  Header* const header = header_of(data);
  munmap(header, header->mapped);
}

}  // namespace

std::shared_ptr<FileBlockSource> file_block_source() noexcept { return t_source.lock(); }
void set_file_block_source(std::weak_ptr<FileBlockSource> source) noexcept { t_source = std::move(source); }

size_t file_block_size(size_t bytes) noexcept { return kHeaderBytes + bytes; }

c10::DataPtr map_file_block(int file, size_t bytes) noexcept {
  const size_t size = file_block_size(bytes);
  void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (begin == MAP_FAILED) return {};
  static_cast<Header*>(begin)->mapped = size;
  void* const data = static_cast<char*>(begin) + kHeaderBytes;
  return {data, data, &release_file_block, c10::kCPU};
}

bool is_file_block(const c10::DataPtr& data) noexcept { return data.get_deleter() == &release_file_block; }

bool settle_file_block(const c10::DataPtr& data) noexcept {
  Header* const header = header_of(data.get());
  const size_t mapped = header->mapped;
  return msync(header, mapped, MS_SYNC) == 0 && madvise(header, mapped, MADV_DONTNEED) == 0;
}

}  // namespace remat::memory
