#include <remat/state_pager.h>

#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/clone.h>

#include <remat/error.h>

#include "device/device.h"
#include "memory/ledger.h"
#include "tiers/spill_file.h"

namespace remat {
namespace {

/// A tensor's bytes in the file, in memory, or both.
struct Page {
  std::vector<int64_t> sizes, strides;
  at::ScalarType type = at::kFloat;
  int64_t bytes = 0;
  at::Tensor tensor;                    ///< where it is in memory: not written yet, or read ahead
  std::shared_ptr<tiers::Piece> piece;  ///< destroyed before the memory that it reads or writes

  bool is_unwritten() const { return tensor.defined() && piece == nullptr; }

  /// Not by an operator: nobody records where the contents come from.
  void begin_read() {
    tensor = at::Tensor(at::detail::empty_strided_cpu(sizes, strides, type));
    piece->begin_read(tensor.mutable_data_ptr());
  }
};

int64_t unwritten_bytes_of(const std::vector<Page>& pages) {
  int64_t bytes = 0;
  for (const auto& page : pages) bytes += page.is_unwritten() ? page.bytes : 0;
  return bytes;
}

std::vector<at::Tensor> tensors_of(const std::vector<Page>& pages) {
  std::vector<at::Tensor> tensors;
  for (const auto& page : pages) tensors.push_back(page.tensor);
  return tensors;
}

int64_t checked_limit(int64_t limit) {
  if (limit >= 4096) return limit;
  throw Error("[paged] the limit is " + std::to_string(limit) + " bytes; give 4096 or more, or none");
}

}  // namespace

struct PagedState::Impl {
  std::shared_ptr<StatePager::Impl> pager;
  std::vector<Page> pages;
  std::vector<Page> lent;    ///< fetched and not stored since: who has them may have been interrupted
  std::weak_ptr<Impl> next;  ///< fetched after this one the last time

  void clear();
  void begin_read();
  void wait_read();
  /// What is in the file too leaves memory.
  void leave_memory() {
    for (auto& page : pages) {
      if (page.piece == nullptr) continue;
      page.piece->wait_read();
      page.tensor.reset();
    }
  }
};

struct StatePager::Impl {
  Impl(const std::string& directory, int64_t limit) : file(directory, checked_limit(limit)) {}

  tiers::SpillFile file;
  std::weak_ptr<PagedState::Impl> last, ahead, behind;  ///< fetched, being read, being written
  std::optional<std::string> failure;
  bool has_told = false;  ///< of a failure
  int64_t unwritten_bytes = 0;

  void finish_write() {
    const auto state = std::exchange(behind, {}).lock();
    if (state == nullptr) return;
    for (auto& page : state->pages) {
      if (page.piece->wait_written()) {
        page.tensor.reset();
        continue;
      }
      if (!std::exchange(has_told, true)) failure = page.piece->error();
      page.piece = nullptr;
      unwritten_bytes += page.bytes;
    }
  }
  void stop_reading_ahead() {
    if (const auto state = std::exchange(ahead, {}).lock()) state->leave_memory();
  }
  void read_ahead(const std::shared_ptr<PagedState::Impl>& state) {
    if (state == nullptr || state->pages.empty() || behind.lock() == state) return;
    int64_t bytes = 0;
    for (const auto& page : state->pages) bytes += page.tensor.defined() ? 0 : page.bytes;
    auto& ledger = memory::Ledger::of(device::kHost);
    if (ledger.current() + bytes > ledger.enforced_limit()) return;
    const memory::Dispensable dispensable;  // nothing is evicted or refused for it
    try {
      state->begin_read();
      ahead = state;
    } catch (const std::exception&) {  // no memory for it now: it is read when it is asked for
      state->leave_memory();
    }
  }
};

void PagedState::Impl::clear() {
  pager->unwritten_bytes -= unwritten_bytes_of(pages);
  pages.clear();
}

void PagedState::Impl::begin_read() {
  for (auto& page : pages) {
    if (!page.tensor.defined()) page.begin_read();
  }
}

void PagedState::Impl::wait_read() {
  for (auto& page : pages) {
    if (page.piece == nullptr || page.piece->wait_read()) continue;
    const auto reason = page.piece->error();
    leave_memory();
    throw Error("[paged] " + reason +
                "; the update of this parameter has not begun: mend it and try again, or load model and optimizer from "
                "a checkpoint");
  }
}

PagedState::PagedState(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
PagedState::~PagedState() { impl_->clear(); }

bool PagedState::can_store(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && device::is_host(tensor.device()) &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch() && tensor.is_non_overlapping_and_dense() &&
         !tensor.requires_grad() && !tensor.is_conj() && !tensor.is_neg();
}

bool PagedState::empty() const { return impl_->pages.empty(); }

void PagedState::store(std::vector<at::Tensor> tensors) {
  impl_->lent.clear();
  if (tensors.empty()) return impl_->clear();
  auto& pager = *impl_->pager;
  pager.finish_write();
  impl_->clear();
  for (auto& tensor : tensors) {
    Page page{tensor.sizes().vec(), tensor.strides().vec(),
              tensor.scalar_type(), static_cast<int64_t>(tensor.nbytes()),
              std::move(tensor),    nullptr};
    page.piece = pager.file.write(page.tensor.const_data_ptr(), page.bytes);
    impl_->pages.push_back(std::move(page));
  }
  pager.behind = impl_;
}

std::vector<at::Tensor> PagedState::fetch() {
  if (empty()) return tensors_of(impl_->lent);
  auto& pager = *impl_->pager;
  if (pager.behind.lock() == impl_) pager.finish_write();
  if (pager.ahead.lock() != impl_) pager.stop_reading_ahead();
  impl_->begin_read();
  impl_->wait_read();
  pager.ahead.reset();
  pager.unwritten_bytes -= unwritten_bytes_of(impl_->pages);
  impl_->lent = std::exchange(impl_->pages, {});

  if (const auto before = std::exchange(pager.last, impl_).lock(); before != nullptr && before != impl_) {
    before->next = impl_;
  }
  pager.read_ahead(impl_->next.lock());
  return tensors_of(impl_->lent);
}

void PagedState::give_back() {
  if (!empty()) return;
  impl_->pages = std::exchange(impl_->lent, {});
  impl_->pager->unwritten_bytes += unwritten_bytes_of(impl_->pages);
  impl_->leave_memory();
}

std::vector<at::Tensor> PagedState::read() {
  std::vector<at::Tensor> copies;
  for (const auto& page : impl_->lent) copies.push_back(page.tensor.clone());
  if (empty()) return copies;
  auto& pager = *impl_->pager;
  if (pager.behind.lock() == impl_) pager.finish_write();
  if (pager.ahead.lock() == impl_) pager.ahead.reset();
  impl_->begin_read();
  impl_->wait_read();
  std::vector<at::Tensor> tensors;
  for (auto& page : impl_->pages) {
    tensors.push_back(page.is_unwritten() ? page.tensor.clone() : std::exchange(page.tensor, {}));
  }
  return tensors;
}

StatePager::StatePager(const std::string& directory, int64_t limit_bytes)
    : impl_(std::make_shared<Impl>(directory, limit_bytes)) {}
StatePager::~StatePager() = default;

std::shared_ptr<PagedState> StatePager::add() {
  auto state = std::make_shared<PagedState::Impl>();
  state->pager = impl_;
  return std::shared_ptr<PagedState>(new PagedState(std::move(state)));
}

void StatePager::end_round() {
  impl_->finish_write();
  impl_->stop_reading_ahead();
  impl_->last.reset();
}

std::optional<std::string> StatePager::take_failure() { return std::exchange(impl_->failure, std::nullopt); }

PagingReport StatePager::report() const {
  const auto counts = impl_->file.counts();
  return {counts.written_bytes,  counts.read_bytes, counts.write_seconds, counts.read_seconds,
          counts.waited_seconds, counts.file_bytes, counts.bytes_in_use,  impl_->unwritten_bytes};
}

}  // namespace remat
