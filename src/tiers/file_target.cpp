#include "tiers/file_target.h"

#include <utility>

#include "device/device.h"
#include "device/storage_over.h"

namespace remat::tiers {
namespace {

class InFile final : public MovedContents {
 public:
  explicit InFile(std::shared_ptr<Piece> piece) : piece_(std::move(piece)) {}

  bool wait_written() override { return piece_->wait_written(); }
  bool is_written() const override { return piece_->is_idle(); }
  void begin_read(const StoragePtr& memory) override { piece_->begin_read(memory->mutable_data()); }
  bool wait_read() override { return piece_->wait_read(); }
  std::string error() const override { return piece_->error(); }

 private:
  const std::shared_ptr<Piece> piece_;
};

}  // namespace

bool FileTarget::takes(const c10::StorageImpl& storage) const { return device::is_on_host(storage); }

std::shared_ptr<MovedContents> FileTarget::write(const StoragePtr& from, int64_t bytes) {
  return std::make_shared<InFile>(file_->write(from->data(), bytes));
}

StoragePtr FileTarget::allocate(int64_t bytes) const {
  return device::new_storage(static_cast<size_t>(bytes), device::kHost);
}

}  // namespace remat::tiers
