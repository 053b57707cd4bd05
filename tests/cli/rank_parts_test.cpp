// The states of several processes in one file, with processes that are threads here.
#include "cli/rank_parts.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "support/expect_error.h"

namespace remat::cli {
namespace {

/// What is on the way from each process to the first.
struct Wires {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::deque<std::vector<char>>> messages;
};

class Thread final : public DataParallel {
 public:
  Thread(Wires& wires, int rank) : wires_(wires), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(wires_.messages.size()); }
  void send(const std::vector<char>& bytes) override {
    const std::lock_guard lock(wires_.mutex);
    wires_.messages[static_cast<size_t>(rank_)].push_back(bytes);
    wires_.arrived.notify_all();
  }
  std::vector<char> receive(int rank) override {
    std::unique_lock lock(wires_.mutex);
    auto& messages = wires_.messages[static_cast<size_t>(rank)];
    wires_.arrived.wait(lock, [&] { return !messages.empty(); });
    auto message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

  // Not asked for.
  NamedTensors leaves() const override { return {}; }
  at::Tensor run(const std::function<at::Tensor()>& forward) override { return forward(); }
  void average_gradients() override {}
  void average_gradient(const at::Tensor& /*leaf*/) override {}
  void clip_gradients(double /*norm*/) override {}
  void reset() override {}
  float mean(float value) override { return value; }
  std::vector<double> sums(const std::vector<double>& values) override { return values; }
  std::string broadcast(const std::string& text) override { return text; }
  void broadcast_buffers() override {}
  void with_whole_model(const std::function<void()>& work) override { work(); }
  void save_own(const torch::optim::Optimizer&, int64_t, const WriteBytes&) override {}
  int64_t load_own(torch::optim::Optimizer&, const std::vector<StatePart>&) override { return 0; }
  Ranks ranks() const override { return {}; }

 private:
  Wires& wires_;
  int rank_;
};

using Save = std::function<void(const WriteBytes&)>;

Save saving(std::vector<std::string> pieces) {
  return [pieces = std::move(pieces)](const WriteBytes& write) {
    for (const std::string& piece : pieces) write(piece.data(), piece.size());
  };
}

/// Each saves on a thread of its own; `write` is the first one's.
void write_all(const std::vector<Save>& saves, const WriteBytes& write) {
  Wires wires;
  wires.messages.resize(saves.size());
  std::vector<std::jthread> others;
  for (size_t rank = 1; rank < saves.size(); ++rank) {
    others.emplace_back([&, rank] {
      Thread process(wires, static_cast<int>(rank));
      try {
        write_parts(process, saves[rank], [](const void*, size_t) { FAIL() << "only the first one writes"; });
      } catch (const Error&) {  // its own, which it reports
      }
    });
  }
  Thread first(wires, 0);
  write_parts(first, saves[0], write);
}

struct Bytes {
  std::string bytes;
  WriteBytes write() {
    return [this](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  }
  StatePart whole() const {
    const auto read = [this](size_t offset, void* to, size_t size) {
      const size_t count = offset < bytes.size() ? std::min(size, bytes.size() - offset) : 0;
      std::memcpy(to, bytes.data() + offset, count);
      return count;
    };
    return {.read = read, .size = bytes.size()};
  }
};

std::string text_of(const StatePart& part) {
  std::string text(part.size + 10, '-');
  text.resize(part.read(0, text.data(), text.size()));
  return text;
}

TEST(RankParts, EachProcessFindsItsOwn) {
  const std::string large(9 << 20, 'x');  // more than one message
  Bytes file;
  write_all({saving({"zero", "0"}), saving({}), saving({"2", large})}, file.write());
  const auto parts = find_parts(file.whole(), 3);
  EXPECT_EQ(text_of(parts[0]), "zero0");
  EXPECT_EQ(text_of(parts[1]), "");
  EXPECT_EQ(text_of(parts[2]), "2" + large);
  char byte = 0;
  EXPECT_EQ(parts[0].read(4, &byte, 1), 1U);
  EXPECT_EQ(byte, '0');
  EXPECT_EQ(parts[0].read(5, &byte, 1), 0U) << "what follows is another's";
}

TEST(RankParts, AreRefusedByAnotherNumberOfProcesses) {
  Bytes file;
  write_all({saving({"zero"}), saving({"one"})}, file.write());
  EXPECT_ERROR(find_parts(file.whole(), 3), "are not the states of 3 processes");
  EXPECT_ERROR(find_parts(file.whole(), 1), "are not the states of 1 processes");
  EXPECT_ERROR(find_parts({.read = file.whole().read, .size = 3}, 2), "its 3 bytes are not the states");
}

TEST(RankParts, AFullDiskIsReportedWhenAllHaveBeenHeard) {
  int heard = 0;
  const WriteBytes full = [&](const void*, size_t) {
    ++heard;
    throw Error("[test] full");
  };
  EXPECT_ERROR(write_all({saving({"zero"}), saving({"one"})}, full), "[test] full");
  EXPECT_EQ(heard, 1);
}

TEST(RankParts, AProcessThatCannotSaveIsNamed) {
  Bytes file;
  const Save fails = [](const WriteBytes& write) {
    write("a", 1);
    throw Error("[test] broken");
  };
  EXPECT_ERROR(write_all({saving({"zero"}), saving({"one"}), fails}, file.write()), "rank 2 could not save its state");
}

}  // namespace
}  // namespace remat::cli
