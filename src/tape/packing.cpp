#include "tape/packing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "device/device.h"
#include "memory/ledger.h"

namespace remat {
namespace {

constexpr int64_t kWord = 64;

/// 64 elements to 64 bits. Written for compilers to vectorize: bytes of 0 and 1 first, eight of them to a byte after.
/// Gives false where an element is neither `zero` nor `one`.
template <class Element>
bool pack_word(const Element* elements, Element zero, Element one, uint64_t& word) {
  std::array<uint8_t, kWord> is_one;
  uint8_t strange = 0;
  for (int i = 0; i < kWord; ++i) is_one[i] = elements[i] == one;
  for (int i = 0; i < kWord; ++i) strange |= (elements[i] != zero) & (elements[i] != one);
  word = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t eight = 0;
    std::memcpy(&eight, is_one.data() + ptrdiff_t{8} * i, 8);
    word |= ((eight * 0x0102040810204080U) >> 56U) << (8U * static_cast<unsigned>(i));  // bit i of each byte i
  }
  return strange == 0;
}

template <class Narrow>
void narrow(const uint64_t* from, int64_t elements, void* to) {
  auto* const narrowed = static_cast<Narrow*>(to);
  for (int64_t i = 0; i < elements; ++i) narrowed[i] = static_cast<Narrow>(from[i]);
}

template <class Narrow>
void widen(const void* from, int64_t elements, uint64_t* to) {
  const auto* const narrowed = static_cast<const Narrow*>(from);
  for (int64_t i = 0; i < elements; ++i) to[i] = narrowed[i];
}

}  // namespace

template <class Element>
bool Packed::pack_bits(const void* contents) {
  const auto* const elements = static_cast<const Element*>(contents);
  const auto* const end = elements + elements_;
  const Element zero = *elements;
  const auto* const other = std::find_if(elements, end, [=](Element e) { return e != zero; });
  zero_ = one_ = zero;
  if (other == end) return true;
  const Element one = *other;
  one_ = one;
  words_.resize(static_cast<size_t>((elements_ + kWord - 1) / kWord));
  for (size_t w = 0; w + 1 < words_.size(); ++w) {
    if (!pack_word(elements + w * kWord, zero, one, words_[w])) return false;
  }
  std::array<Element, kWord> last;
  last.fill(zero);
  std::copy(elements + (words_.size() - 1) * kWord, end, last.begin());
  return pack_word(last.data(), zero, one, words_.back());
}

template <class Element>
void Packed::unpack_bits(void* contents) const {
  auto* const elements = static_cast<Element*>(contents);
  const auto zero = static_cast<Element>(zero_);
  const auto one = static_cast<Element>(one_);
  if (words_.empty()) {
    std::fill_n(elements, elements_, zero);
    return;
  }
  std::array<std::array<Element, 8>, 256> eights;
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 8; ++i) eights[byte][i] = ((byte >> i) & 1U) != 0 ? one : zero;
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words_.data());
  const int64_t whole = elements_ / 8;
  for (int64_t i = 0; i < whole; ++i) std::memcpy(elements + 8 * i, eights[bytes[i]].data(), 8 * sizeof(Element));
  if (elements_ % 8 != 0) std::copy_n(eights[bytes[whole]].begin(), elements_ % 8, elements + 8 * whole);
}

bool Packed::pack_narrow(const uint64_t* contents) {
  const uint64_t largest = *std::max_element(contents, contents + elements_);  // negative ones are the largest
  if (largest > std::numeric_limits<uint32_t>::max()) return false;
  narrow_bytes_ = largest > std::numeric_limits<uint16_t>::max()  ? 4
                  : largest > std::numeric_limits<uint8_t>::max() ? 2
                                                                  : 1;
  words_.resize(static_cast<size_t>((elements_ * narrow_bytes_ + 7) / 8));
  if (narrow_bytes_ == 1) narrow<uint8_t>(contents, elements_, words_.data());
  if (narrow_bytes_ == 2) narrow<uint16_t>(contents, elements_, words_.data());
  if (narrow_bytes_ == 4) narrow<uint32_t>(contents, elements_, words_.data());
  return true;
}

std::shared_ptr<Packed> Packed::of(const c10::StorageImpl& storage, int64_t extent, uint8_t element_bytes) {
  if (!device::is_on_host(storage) || extent < element_bytes || extent % element_bytes != 0) return nullptr;
  std::shared_ptr<Packed> packed(new Packed);
  packed->element_bytes_ = element_bytes;
  packed->elements_ = extent / element_bytes;
  const void* const contents = storage.data();
  bool fits = false;
  if (element_bytes == 1) fits = packed->pack_bits<uint8_t>(contents);
  if (element_bytes == 2) fits = packed->pack_bits<uint16_t>(contents);
  if (element_bytes == 4) fits = packed->pack_bits<uint32_t>(contents);
  if (element_bytes == 8) {
    fits = packed->pack_bits<uint64_t>(contents) || packed->pack_narrow(static_cast<const uint64_t*>(contents));
  }
  return fits ? packed : nullptr;
}

Packed::~Packed() {
  if (ledger_ != nullptr) ledger_->release(bytes());
}

bool Packed::count_in(memory::Ledger& ledger) {
  if (ledger_ != nullptr || !ledger.hold(bytes())) return ledger_ != nullptr;
  ledger_ = &ledger;
  return true;
}

void Packed::unpack(c10::StorageImpl& storage) const {
  void* const contents = storage.mutable_data();
  if (narrow_bytes_ == 1) return widen<uint8_t>(words_.data(), elements_, static_cast<uint64_t*>(contents));
  if (narrow_bytes_ == 2) return widen<uint16_t>(words_.data(), elements_, static_cast<uint64_t*>(contents));
  if (narrow_bytes_ == 4) return widen<uint32_t>(words_.data(), elements_, static_cast<uint64_t*>(contents));
  if (element_bytes_ == 1) unpack_bits<uint8_t>(contents);
  if (element_bytes_ == 2) unpack_bits<uint16_t>(contents);
  if (element_bytes_ == 4) unpack_bits<uint32_t>(contents);
  if (element_bytes_ == 8) unpack_bits<uint64_t>(contents);
}

}  // namespace remat
