#include "cli/rank_group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>

#include "cli/failure.h"
#include "cli/interrupt.h"

namespace remat::cli {

std::vector<std::vector<int64_t>> RankGroup::gather(std::vector<int64_t> mine) {
  mine.push_back(interrupted());  // so that no exchange is needed for it alone
  auto all = exchange(mine);
  for (auto& numbers : all) {
    if (stop_signal_ == 0) stop_signal_ = static_cast<int>(numbers.back());
    numbers.pop_back();
  }
  return all;
}

std::vector<std::string> RankGroup::gather_text(const std::string& mine) {
  std::vector<std::string> texts;
  size_t longest = 0;
  for (const auto& bytes : gather({static_cast<int64_t>(mine.size())})) {
    texts.emplace_back(static_cast<size_t>(bytes[0]), ' ');
    longest = std::max(longest, texts.back().size());
  }
  if (longest == 0) return texts;
  std::vector<int64_t> words((longest + sizeof(int64_t) - 1) / sizeof(int64_t));
  std::memcpy(words.data(), mine.data(), mine.size());
  const auto all = gather(words);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::memcpy(texts[rank].data(), all[rank].data(), texts[rank].size());
  }
  return texts;
}

std::vector<double> RankGroup::sums(const std::vector<double>& mine) {
  std::vector<int64_t> bits(mine.size());
  std::ranges::transform(mine, bits.begin(), [](double number) { return std::bit_cast<int64_t>(number); });
  std::vector<double> sums(mine.size());
  for (const auto& numbers : gather(bits)) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += std::bit_cast<double>(numbers[i]);
  }
  return sums;
}

uint64_t RankGroup::most(uint64_t mine) {
  for (const auto& numbers : gather({static_cast<int64_t>(mine)}))
    mine = std::max(mine, static_cast<uint64_t>(numbers[0]));
  return mine;
}

void RankGroup::together(const std::string& doing, const std::function<void()>& work) {
  std::exception_ptr own;
  std::string problem;
  try {
    work();
  } catch (...) {
    own = std::current_exception();
    problem = failure_of(own).message;
  }
  const auto problems = gather_text(problem);
  const auto failed = std::ranges::find_if(problems, [](const auto& text) { return !text.empty(); });
  if (failed == problems.end()) return;
  apart_ = false;
  if (own) {
    try {
      std::rethrow_exception(own);
    } catch (const Error&) {
      throw;
    } catch (...) {  // the others get an Error too, and go on as after one
      throw Error(problem);
    }
  }
  throw Error("[ranks] rank " + std::to_string(failed - problems.begin()) + " cannot " + doing + ": " + *failed);
}

}  // namespace remat::cli
