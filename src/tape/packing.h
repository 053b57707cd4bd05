// src/tape/packing.h -- contents that take fewer bytes than they seem to, held without loss.
//
// A dropout mask kept as floats holds one bit in 32; a comparison one bit in a byte; indices are 64-bit numbers that
// seldom pass some thousands. Which values may be such is told by their operators (Value::element_bytes). Whether they
// are is found by reading them, every element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <c10/core/StorageImpl.h>

#include "tape/held_contents.h"

namespace remat {

namespace memory {
class Ledger;
}

class Packed final : public HeldContents {
 public:
  /// Packs the first `extent` bytes of `storage` (on the CPU), read as elements of 1, 2, 4 or 8 bytes. Null where they
  /// take more than two different elements and, for 8 bytes, do not fit into 4.
  static std::shared_ptr<Packed> of(const c10::StorageImpl& storage, int64_t extent, uint8_t element_bytes);
  ~Packed() override;

  /// At least a word: elements that are all the same take that of one.
  int64_t bytes() const override { return static_cast<int64_t>(std::max<size_t>(1, words_.size()) * sizeof(uint64_t)); }
  /// Counts them as alive, for as long as this lives. False, and nothing is counted, where they would pass a limit.
  bool count_in(memory::Ledger& ledger);
  /// Writes the contents back, into a storage of the original's size.
  void unpack(c10::StorageImpl& storage) const;

 private:
  Packed() : HeldContents(Form::kPacked) {}
  template <class Element>
  bool pack_bits(const void* contents);
  template <class Element>
  void unpack_bits(void* contents) const;
  bool pack_narrow(const uint64_t* contents);

  int64_t elements_ = 0;
  uint8_t element_bytes_ = 0;
  uint8_t narrow_bytes_ = 0;     ///< of an element as it is held; 0: a bit
  uint64_t zero_ = 0, one_ = 0;  ///< the elements that the bits stand for
  std::vector<uint64_t> words_;  ///< none where all elements are the same
  memory::Ledger* ledger_ = nullptr;
};

}  // namespace remat
