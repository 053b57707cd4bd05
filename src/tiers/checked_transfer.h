// src/tiers/checked_transfer.h -- memory to extents of a file and back, with a checksum of what went.
//
// Past the page cache, memory and file have to be aligned. Tensors are not: what lies between the first and the last
// page boundary of one goes without a copy, and what lies before and after it goes in a block behind that.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tiers/extents.h"
#include "tiers/unnamed_file.h"

namespace remat::tiers {

/// What a thread that transfers holds: aligned memory, for what is not aligned itself.
class TransferBuffer {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20;

  /// Throws std::bad_alloc.
  TransferBuffer();
  char* data() const { return data_.get(); }

 private:
  std::unique_ptr<char, decltype(&std::free)> data_;
};

/// What reading needs to know of bytes that were written.
struct Written {
  int64_t head = 0;       ///< the first bytes, which stand in the last block
  uint64_t checksum = 0;  ///< XXH3's, of the bytes in the file's order
};

/// Writes the bytes to the extents, which have room for them. Returns why it failed, or nothing.
std::string write_checked(UnnamedFile& file, const std::vector<Extent>& extents, const void* data, int64_t bytes,
                          const TransferBuffer& buffer, Written& written);
/// Reads them. Returns why it failed, another checksum included, or nothing.
std::string read_checked(UnnamedFile& file, const std::vector<Extent>& extents, void* to, int64_t bytes,
                         const TransferBuffer& buffer, const Written& written);

}  // namespace remat::tiers
