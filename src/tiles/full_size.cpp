#include "tiles/full_size.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include "tiles/samples.h"

namespace remat::tiles {
namespace {

/// Pages that are repeated: an odd number, so that rows of a power of two differ.
constexpr int64_t kPages = 511;

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

/// `bytes` of addresses at which `unit` bytes of a new file are mapped one after another; null where they cannot be.
void* map_repeatedly(int64_t bytes, int64_t unit) {
  const int file = memfd_create("remat", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  void* const reserved = ftruncate(file, unit) == 0 ? mmap(nullptr, size_t(bytes), PROT_NONE,
                                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                                    : MAP_FAILED;
  bool mapped = reserved != MAP_FAILED;
  for (int64_t begin = 0; mapped && begin < bytes; begin += unit) {
    void* const at = static_cast<char*>(reserved) + begin;
    mapped = mmap(at, size_t(unit), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  }
  close(file);
  if (mapped) return reserved;
  if (reserved != MAP_FAILED) munmap(reserved, size_t(bytes));
  return nullptr;
}

/// A matrix (rows, columns) of which the rows in `kept` have memory of their own, and the others share 2 MiB, so that
/// what is written to them is lost. Undefined where it cannot be mapped.
at::Tensor with_rows(int64_t rows, int64_t columns, const std::vector<int64_t>& kept,
                     const at::TensorOptions& options) {
  const auto row_bytes = columns * int64_t(options.dtype().itemsize());
  const int64_t page = sysconf(_SC_PAGESIZE), bytes = round_up(std::max<int64_t>(rows * row_bytes, 1), kPages * page);
  void* const memory = map_repeatedly(bytes, kPages * page);
  if (memory == nullptr) return {};
  at::Tensor all = at::from_blob(
      memory, {rows, columns}, [bytes](void* mapped) { munmap(mapped, size_t(bytes)); }, options);
  int64_t mapped_to = 0;  // pages that two rows have in common are mapped once
  for (const int64_t row : kept) {
    const int64_t begin = std::max(mapped_to, row * row_bytes / page * page),
                  end = round_up((row + 1) * row_bytes, page);
    if (begin >= end) continue;
    void* const at = static_cast<char*>(memory) + begin;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(at, size_t(end - begin), PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) return {};
    mapped_to = end;
  }
  return all;
}

/// Where tiles of multiples of 64 may begin and end, one row between, and the last ones.
std::vector<int64_t> rows_to_keep(int64_t tokens) {
  constexpr int64_t kStep = 64, kBetween = 29, kLast = 16;
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < tokens; ++row) {
    const int64_t at = row % kStep;
    if (at == 0 || at == kBetween || at == kStep - 1 || tokens - row <= kLast) rows.push_back(row);
  }
  return rows;
}

uint64_t bits_of(const at::Tensor& tensor) { return XXH3_64bits(tensor.const_data_ptr(), tensor.nbytes()); }

}  // namespace

at::Tensor repeating(int64_t rows, int64_t columns, uint64_t seed, double deviation, const at::TensorOptions& options) {
  const auto size = int64_t(options.dtype().itemsize());
  const int64_t page = sysconf(_SC_PAGESIZE), needed = std::max<int64_t>(rows * columns * size, 1);
  const int64_t unit = std::min(round_up(needed, page), kPages * page), bytes = round_up(needed, unit);
  const at::Tensor counted = at::empty({unit / size}, options);  // budgets see no mapped memory
  void* const memory = map_repeatedly(bytes, unit);
  if (memory == nullptr) return {};
  const at::Tensor all = at::from_blob(
      memory, {bytes / size}, [bytes, counted](void* mapped) { munmap(mapped, size_t(bytes)); }, options);
  at::Tensor first = all.narrow(0, 0, unit / size);
  fill(first, seed, deviation);
  return all.narrow(0, 0, rows * columns).view({rows, columns});
}

at::Tensor numbers_like(const at::Tensor& like, uint64_t seed, double deviation) {
  if (!like.defined()) return like;
  const bool is_plain = like.dim() == 2 && like.is_contiguous() && misalignment(like) == 0;
  const at::Tensor repeated =
      is_plain ? repeating(like.size(0), like.size(1), seed, deviation, like.options()) : at::Tensor();
  return repeated.defined() ? repeated : sample_like(like, seed, deviation);
}

LargeProduct::LargeProduct(int64_t tokens, int64_t columns, const at::TensorOptions& options, Write write)
    : tokens_(tokens), write_(std::move(write)) {
  const std::vector<int64_t> rows = rows_to_keep(tokens);
  const at::Tensor counted = at::empty({int64_t(rows.size()), columns}, options);
  at::Tensor whole = with_rows(tokens, columns, rows, options);
  if (!whole.defined()) return;
  write_(whole, 0, tokens);
  rows_ = at::tensor(rows, at::kLong);
  kept_ = whole.index_select(0, rows_);
}

bool LargeProduct::is_same_in(const RowTiles& tiles) const {
  const auto* const rows = rows_.const_data_ptr<int64_t>();
  int64_t done = 0;
  for (int64_t begin = 0, count = 0; begin < tokens_; begin += count) {
    count = tiles.count(begin, tokens_);
    const int64_t end = std::lower_bound(rows + done, rows + rows_.numel(), begin + count) - rows;
    at::Tensor tile = at::empty({count, kept_.size(1)}, kept_.options());
    write_(tile, begin, count);
    const at::Tensor some = tile.index_select(0, rows_.narrow(0, done, end - done) - begin);
    if (!have_same_bits(some, kept_.narrow(0, done, end - done))) return false;
    done = end;
  }
  return true;
}

bool LargeProduct::is_same_block(const at::Tensor& block, int64_t begin) const {
  return have_same_bits(block.index_select(0, rows_), kept_.narrow(1, begin, block.size(1)).contiguous());
}

RowProduct::RowProduct(at::Tensor large, Function function)
    : large_(std::move(large)), function_(std::move(function)), whole_(function_(large_)) {}

bool RowProduct::is_same_in(const RowTiles& tiles) const {
  const int64_t tokens = large_.size(0);
  for (int64_t begin = 0, count = 0; begin < tokens; begin += count) {
    count = tiles.count(begin, tokens);
    const at::Tensor tile = large_.narrow(0, begin, count).clone();  // memory of its own, as in a computation in tiles
    if (!have_same_bits(function_(tile), whole_.narrow(0, begin, count))) return false;
  }
  return true;
}

TokenSum::TokenSum(at::Tensor large, at::Tensor other, bool large_is_left)
    : large_(std::move(large)), other_(std::move(other)), large_is_left_(large_is_left) {
  at::Tensor sum;
  add(sum, large_, other_, large_.size(0));
  bits_ = bits_of(sum);
}

bool TokenSum::is_same_in(const RowTiles& tiles) const {
  const int64_t tokens = large_.size(0);
  at::Tensor sum;
  for (int64_t begin = 0, count = 0; begin < tokens; begin += count) {
    count = tiles.count(begin, tokens);
    add(sum, large_.narrow(0, begin, count).clone(), other_.narrow(0, begin, count), tiles.part);
  }
  return is_same(sum);
}

bool TokenSum::is_same(const at::Tensor& sum) const { return bits_of(sum) == bits_; }

void TokenSum::add(at::Tensor& sum, const at::Tensor& large, const at::Tensor& other, int64_t part) const {
  add_products(sum, large_is_left_ ? large : other, large_is_left_ ? other : large, part);
}

}  // namespace remat::tiles
