#include "device/file_blocks.h"

#include <utility>
#include <vector>

#include <sys/mman.h>

#include "memory/fork.h"
#include "util/mutex.h"

namespace remat::memory {
namespace {

/// In front of the tensor's bytes, so that these begin where a page does.
constexpr size_t kHeaderBytes = 4096;

/// Of one thread, whose end it outlives: whoever ends the source looks for it here.
struct Link {
  std::shared_ptr<FileBlockSource> source;  ///< under the mutex of links()
};

struct Links {
  Mutex mutex;
  std::vector<Link*> all REMAT_GUARDED_BY(mutex);
};

Links& links() {
  static auto& all = never_destroyed<Links>();
  return all;
}

thread_local Link* t_link = nullptr;

struct Header {
  size_t mapped;  ///< bytes, this page included
};

Header* header_of(void* data) noexcept { return reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes); }

void release_file_block(void* data) {
  Header* const header = header_of(data);
  munmap(header, header->mapped);
}

}  // namespace

std::shared_ptr<FileBlockSource> file_block_source() {
  if (t_link == nullptr) return nullptr;
  const MutexLock lock(links().mutex);
  return t_link->source;
}

void begin_file_block_source(std::shared_ptr<FileBlockSource> source) {
  const MutexLock lock(links().mutex);
  if (t_link == nullptr) {
    t_link = new Link;
    links().all.push_back(t_link);
  }
  t_link->source = std::move(source);
}

void end_file_block_source(const FileBlockSource& source) noexcept {
  const MutexLock lock(links().mutex);
  for (Link* const link : links().all) {
    if (link->source.get() == &source) link->source.reset();
  }
}

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
