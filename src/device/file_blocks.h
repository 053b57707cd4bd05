// src/device/file_blocks.h -- memory of CPU tensors that is a file's: mapped, and counted by no ledger. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include <c10/core/Allocator.h>

namespace remat::memory {

/// Where some allocations of a thread are made.
class FileBlockSource {
 public:
  virtual ~FileBlockSource() = default;
  /// A block for `bytes`, of map_file_block(). May throw.
  virtual c10::DataPtr allocate(size_t bytes) = 0;
};

/// Those of a tensor below are made as always.
constexpr size_t kSmallestFileBlock = 64 << 10;

/// Of this thread; null: none, or it has ended.
std::shared_ptr<FileBlockSource> file_block_source();
void begin_file_block_source(std::shared_ptr<FileBlockSource> source);
/// Of whatever thread it is.
void end_file_block_source(const FileBlockSource& source) noexcept;

/// Bytes of a file that hold a block for `bytes`.
size_t file_block_size(size_t bytes) noexcept;
/// Maps an open file of that size, which may be closed then. Null where the system refuses, with the reason in errno.
c10::DataPtr map_file_block(int file, size_t bytes) noexcept;
bool is_file_block(const c10::DataPtr& data) noexcept;
/// Writes what was changed to the file and takes the block's pages from the process. False with the reason in errno.
bool settle_file_block(const c10::DataPtr& data) noexcept;

}  // namespace remat::memory
