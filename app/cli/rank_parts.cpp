#include "cli/rank_parts.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include <remat/error.h>

namespace remat::cli {
namespace {

constexpr size_t kMostSent = 4 << 20;  // bytes at once

/// What each message to the first process begins with.
enum class Message : char { kBytes, kEnd, kFailed };

void send(DataParallel& processes, Message kind, const char* bytes = nullptr, size_t size = 0) {
  std::vector<char> message(size + 1);
  message[0] = static_cast<char>(kind);
  std::copy_n(bytes, size, message.begin() + 1);
  processes.send(message);
}

void send_part(DataParallel& processes, const std::function<void(const WriteBytes&)>& save) {
  try {
    save([&](const void* data, size_t size) {
      const char* const bytes = static_cast<const char*>(data);
      for (size_t done = 0; done < size; done += kMostSent) {
        send(processes, Message::kBytes, bytes + done, std::min(kMostSent, size - done));
      }
    });
  } catch (...) {
    send(processes, Message::kFailed);
    throw;
  }
  send(processes, Message::kEnd);
}

void receive_part(DataParallel& processes, int rank, const WriteBytes& write) {
  while (true) {
    const std::vector<char> message = processes.receive(rank);
    const auto kind = static_cast<Message>(message.at(0));
    if (kind == Message::kEnd) return;
    if (kind == Message::kFailed) {
      throw Error("[ranks] rank " + std::to_string(rank) + " could not save its state; its own message says why");
    }
    write(message.data() + 1, message.size() - 1);
  }
}

}  // namespace

void write_parts(DataParallel& processes, const std::function<void(const WriteBytes&)>& save, const WriteBytes& write) {
  if (processes.rank() > 0) return send_part(processes, save);
  std::exception_ptr error;  // the first; the others go on sending all the same
  std::vector<uint64_t> sizes(static_cast<size_t>(processes.size()));
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  const auto write_part = [&](int rank, const void* data, size_t size) {
    sizes[static_cast<size_t>(rank)] += size;
    if (!error) attempt([&] { write(data, size); });
  };
  attempt([&] { save([&](const void* data, size_t size) { write_part(0, data, size); }); });
  for (int rank = 1; rank < processes.size(); ++rank) {
    attempt(
        [&] { receive_part(processes, rank, [&](const void* data, size_t size) { write_part(rank, data, size); }); });
  }
  if (error) std::rethrow_exception(error);
  write(sizes.data(), sizes.size() * sizeof(uint64_t));
}

std::vector<StatePart> find_parts(const StatePart& whole, int count) {
  std::vector<uint64_t> sizes(static_cast<size_t>(count));
  const size_t bytes = sizes.size() * sizeof(uint64_t);
  uint64_t sum = bytes;
  if (whole.size >= bytes && whole.read(whole.size - bytes, sizes.data(), bytes) == bytes) {
    for (const uint64_t size : sizes) sum += std::min<uint64_t>(size, whole.size);
  }
  if (sum != whole.size) {
    throw Error("[checkpoint] its " + std::to_string(whole.size) + " bytes are not the states of " +
                std::to_string(count) + " processes; resume with as many processes as saved it");
  }
  std::vector<StatePart> parts;
  size_t begin = 0;
  for (const uint64_t size : sizes) {
    const auto read = [read = whole.read, begin, size](size_t offset, void* data, size_t wanted) -> size_t {
      if (offset >= size) return 0;
      return read(begin + offset, data, std::min<size_t>(wanted, size - offset));
    };
    parts.push_back({.read = read, .size = size});
    begin += size;
  }
  return parts;
}

}  // namespace remat::cli
