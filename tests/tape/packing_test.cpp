#include "tape/packing.h"

#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "memory/ledger.h"
#include "pytorch/tensor_view.h"

namespace remat {
namespace {

std::shared_ptr<Packed> pack(const at::Tensor& tensor) {
  return Packed::of(*storage_of(tensor), static_cast<int64_t>(tensor.nbytes()),
                    static_cast<uint8_t>(tensor.itemsize()));
}

/// Packs, unpacks elsewhere, compares every bit. Returns the packed size, or -1 where it refused.
int64_t round_trip(const at::Tensor& tensor) {
  const auto packed = pack(tensor);
  if (packed == nullptr) return -1;
  auto other = torch::empty_like(tensor);
  std::memset(other.data_ptr(), 0x5a, other.nbytes());
  packed->unpack(*storage_of(other));
  EXPECT_EQ(std::memcmp(tensor.data_ptr(), other.data_ptr(), tensor.nbytes()), 0) << tensor.scalar_type();
  return packed->bytes();
}

/// Bytes of a bit for each element, in words.
int64_t bits(int64_t elements) { return (elements + 63) / 64 * 8; }

class Lengths : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Packing, Lengths, testing::Values(2, 7, 8, 9, 63, 64, 65, 127, 128, 1000, 4097));

TEST_P(Lengths, OfMasksOfEveryWidth) {
  torch::manual_seed(1);
  const int64_t length = GetParam();
  for (const auto type : {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kLong}) {
    auto mask = torch::rand({length}).gt(0.3).to(type);
    mask[0] = 0;
    mask[length - 1] = 1;
    if (type != at::kBool && type != at::kByte && type != at::kLong) mask.div_(0.7);
    EXPECT_EQ(round_trip(mask), bits(length)) << type;
  }
}

TEST_P(Lengths, OfIndices) {
  torch::manual_seed(1);
  const int64_t length = GetParam();
  for (const auto& [largest, width] : {std::pair<int64_t, int64_t>{255, 1},
                                       {256, 2},
                                       {65535, 2},
                                       {65536, 4},
                                       {std::numeric_limits<uint32_t>::max(), 4}}) {
    auto indices = torch::randint(0, largest, {length}, at::kLong);
    indices[0] = largest;
    indices[1] = 3;
    const int64_t packed = round_trip(indices);
    EXPECT_EQ(packed, length == 2 ? 8 : (length * width + 7) / 8 * 8) << largest;
  }
}

TEST(Packing, OfTheSameElementEverywhereTakesAWord) {
  EXPECT_EQ(round_trip(torch::full({1000}, -0.0)), 8);
  EXPECT_EQ(round_trip(torch::ones({1}, at::kLong)), 8);
}

TEST(Packing, TellsBitsApartNotNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(round_trip(torch::tensor({nan, 1.0, nan})), 8);
  EXPECT_EQ(round_trip(torch::tensor({0.0, -0.0, 0.0})), 8);
  EXPECT_EQ(round_trip(torch::tensor({0.0, -0.0, 1.0})), -1);
}

TEST(Packing, RefusesAThirdElementWhereverItIs) {
  for (const int64_t length : {5, 64, 65, 500}) {
    for (int64_t i = 0; i < length; ++i) {
      auto mask = torch::arange(length).remainder(2).to(at::kFloat);
      mask[i] = 0.5;
      EXPECT_EQ(round_trip(mask), -1) << i << " of " << length;
    }
  }
}

TEST(Packing, RefusesLargeAndNegativeIndices) {
  auto indices = torch::arange(100);
  indices[99] = std::numeric_limits<uint32_t>::max() + int64_t{1};
  EXPECT_EQ(round_trip(indices), -1);
  indices[99] = -1;
  EXPECT_EQ(round_trip(indices), -1);
}

TEST(Packing, RefusesElementsThatDoNotFillTheirExtent) {
  const auto mask = torch::ones({10}, at::kFloat);
  EXPECT_EQ(Packed::of(*storage_of(mask), 10, 4), nullptr);
  EXPECT_EQ(Packed::of(*storage_of(mask), 0, 4), nullptr);
}

/// Has room for so many bytes.
class SmallLedger final : public memory::Ledger {
 public:
  explicit SmallLedger(int64_t bytes) : room(bytes) {}
  int64_t current() override { return 0; }
  int64_t peak() const override { return 0; }
  void reset_peak() override {}
  bool hold(int64_t bytes) noexcept override {
    if (bytes > room) return false;
    room -= bytes;
    return true;
  }
  void release(int64_t bytes) noexcept override { room += bytes; }
  int64_t adopt(c10::StorageImpl&) override { return 0; }
  std::unique_ptr<Enforcement> enforce(int64_t, memory::Reclaimer&) override { return nullptr; }
  int64_t enforced_limit() const override { return 0; }
  int64_t room;

 private:
  void reset_step() override {}
};

TEST(Packing, CountsItsBytesWhileItLives) {
  SmallLedger ledger(100);
  auto packed = pack(torch::arange(640).remainder(2).to(at::kFloat));
  EXPECT_TRUE(packed->count_in(ledger));
  EXPECT_EQ(ledger.room, 20);
  EXPECT_FALSE(pack(torch::arange(640).remainder(2).to(at::kFloat))->count_in(ledger));
  EXPECT_EQ(ledger.room, 20);
  packed.reset();
  EXPECT_EQ(ledger.room, 100);
}

}  // namespace
}  // namespace remat
