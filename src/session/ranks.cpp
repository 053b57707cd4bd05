#include <remat/ranks.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <remat/error.h>

namespace remat {

Ranks ranks_by_sums(int rank, int size, std::function<void(int64_t* words, int64_t count)> add_up) {
  if (size < 1 || rank < 0 || rank >= size || !add_up) {
    throw Error("[ranks] rank " + std::to_string(rank) + " of " + std::to_string(size) +
                (add_up ? "" : ", without a function that adds up") +
                ", is none; give a rank from 0 to one less than their number, and a function");
  }
  return {.rank = rank, .gather = [rank, size, add_up = std::move(add_up)](const std::vector<int64_t>& mine) {
            const auto count = static_cast<std::ptrdiff_t>(mine.size());
            std::vector<int64_t> words(static_cast<size_t>(size) * mine.size());  // the other ranks' places are zeros
            std::copy(mine.begin(), mine.end(), words.begin() + rank * count);
            add_up(words.data(), static_cast<int64_t>(words.size()));
            std::vector<std::vector<int64_t>> all;
            for (auto next = words.begin(); next != words.end(); next += count) all.emplace_back(next, next + count);
            return all;
          }};
}

}  // namespace remat
