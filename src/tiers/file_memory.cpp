#include <remat/file_memory.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/memory.h>

#include "device/file_blocks.h"
#include "tiers/unnamed_file.h"

namespace remat {

class FileMemory::Source final : public memory::FileBlockSource {
 public:
  explicit Source(std::string directory) : directory_(std::move(directory)) {}

  c10::DataPtr allocate(size_t bytes) override {
    const tiers::UnnamedFile file(directory_);
    // All of its blocks now: a page that has none on a full disk would end the process when it is written.
    int error = 0;
    do error = posix_fallocate(file.descriptor(), 0, static_cast<off_t>(memory::file_block_size(bytes)));
    while (error == EINTR);
    c10::DataPtr block;
    if (error == 0) {
      block = memory::map_file_block(file.descriptor(), bytes);
      error = errno;
    }
    if (block) return block;
    throw Error("[file memory] a tensor of " + format_exact_bytes(static_cast<int64_t>(bytes)) + " has no place in \"" +
                directory_ + "\": " + std::generic_category().message(error) +
                "; make room there, or name a directory of another disk");
  }

 private:
  const std::string directory_;
};

FileMemory::FileMemory(const std::string& directory) : source_(std::make_shared<Source>(directory)) {
  if (memory::file_block_source() != nullptr) {
    throw Error("[file memory] this thread allocates in files already; let the other FileMemory end before");
  }
  const tiers::UnnamedFile can_be_made(directory);
  memory::start_accounting();
  memory::begin_file_block_source(source_);
}

FileMemory::~FileMemory() { memory::end_file_block_source(*source_); }

bool FileMemory::holds(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && memory::is_file_block(tensor.storage().data_ptr());
}

void FileMemory::settle(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!holds(tensor) || memory::settle_file_block(tensor.storage().data_ptr())) continue;
    throw Error("[file memory] a tensor could not be written to its file: " + std::generic_category().message(errno) +
                "; name a directory of another disk");
  }
}

}  // namespace remat
