#include "cli/gloo_ranks.h"

#include <cstring>
#include <string>

#include <remat/distributed.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "cli/gloo_group.h"
#include "cli/rank_meeting.h"

namespace remat::cli {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

constexpr int kTag = 0;

/// Blocks until no process can fail before it meets the others.
Store store_of(const RankPlace& place) {
  if (place.file.empty()) return wait_for_ranks(place);
  return c10::make_intrusive<c10d::FileStore>(place.file, place.size);
}

c10::intrusive_ptr<c10d::ProcessGroup> make_group(const Store& store, const RankPlace& place) {
  static int made = 0;  // groups of one store have different names
  return make_gloo_group(store, place.rank, place.size, "group" + std::to_string(made++));
}

}  // namespace

GlooRanks::GlooRanks(const RankPlace& place) {
  const Store store = store_of(place);
  group_ = make_group(store, place);
  sessions_ = make_group(store, place);
  numbers_ = ranks_of(group_);
}

Ranks GlooRanks::session_ranks() const { return ranks_of(sessions_); }

void GlooRanks::send(const std::vector<char>& message) {
  std::vector<at::Tensor> size = {at::tensor(static_cast<int64_t>(message.size()), at::kLong)};
  finish(group_->send(size, /*dstRank=*/0, kTag));
  if (message.empty()) return;
  std::vector<at::Tensor> bytes = {at::empty({static_cast<int64_t>(message.size())}, at::kByte)};
  std::memcpy(bytes[0].mutable_data_ptr(), message.data(), message.size());
  finish(group_->send(bytes, /*dstRank=*/0, kTag));
}

std::vector<char> GlooRanks::receive(int from) {
  std::vector<at::Tensor> size = {at::zeros({}, at::kLong)};
  finish(group_->recv(size, from, kTag));
  std::vector<char> message(static_cast<size_t>(size[0].item<int64_t>()));
  if (message.empty()) return message;
  std::vector<at::Tensor> bytes = {at::empty({static_cast<int64_t>(message.size())}, at::kByte)};
  finish(group_->recv(bytes, from, kTag));
  std::memcpy(message.data(), bytes[0].const_data_ptr(), message.size());
  return message;
}

std::unique_ptr<RankGroup> join_ranks(const RankPlace& place) { return std::make_unique<GlooRanks>(place); }

}  // namespace remat::cli
