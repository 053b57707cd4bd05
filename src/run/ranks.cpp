#include <remat/ranks.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace remat {

Ranks ranks_by_sums(int rank, int size, std::function<void(int64_t* words, int64_t count)> add_up) {
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
