#include "cli/rank_parts.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>

#include <remat/error.h>

namespace remat::cli {
namespace {

constexpr size_t kMostSent = 4 << 20;  // bytes at once

}  // namespace

void write_parts(RankGroup& ranks, const std::function<void(const WriteBytes&)>& save, const WriteBytes& write) {
  std::exception_ptr error;  // the first; all go on sending and receiving all the same
  const auto attempt = [&](const auto& work) {
    try {
      if (!error) work();
    } catch (...) {
      error = std::current_exception();
    }
  };
  if (ranks.rank() > 0) {
    attempt([&] {
      save([&](const void* data, size_t size) {
        const char* const bytes = static_cast<const char*>(data);
        for (size_t done = 0; done < size; done += kMostSent) {
          ranks.send({bytes + done, bytes + std::min(size, done + kMostSent)});
        }
      });
    });
    ranks.send({});  // the end
  } else {
    std::vector<uint64_t> sizes(static_cast<size_t>(ranks.size()));
    attempt([&] {
      save([&](const void* data, size_t size) {
        sizes[0] += size;
        write(data, size);
      });
    });
    for (int rank = 1; rank < ranks.size(); ++rank) {
      for (auto bytes = ranks.receive(rank); !bytes.empty(); bytes = ranks.receive(rank)) {
        sizes[static_cast<size_t>(rank)] += bytes.size();
        attempt([&] { write(bytes.data(), bytes.size()); });
      }
    }
    attempt([&] { write(sizes.data(), sizes.size() * sizeof(uint64_t)); });
  }
  if (error) std::rethrow_exception(error);
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
