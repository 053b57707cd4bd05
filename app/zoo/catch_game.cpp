#include "zoo/catch_game.h"

#include <algorithm>
#include <string>
#include <utility>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

// In pixels.
constexpr int64_t kBall = 2;         // width and height
constexpr int64_t kPaddleWidth = 6;  // its height is the ball's
constexpr int64_t kMove = 2;         // the paddle's in a step, and the ball's downwards
constexpr int64_t kSmallest = 12;

class CatchGame : public Environment {
 public:
  explicit CatchGame(const CatchConfig& config) : Environment(config.seed), size_(config.size) {}

  std::vector<int64_t> shape() const override { return {2, size_, size_}; }
  at::ScalarType type() const override { return at::kByte; }
  int64_t actions() const override { return 3; }

 private:
  at::Tensor begin(std::mt19937_64& random) override {
    row_ = 0;
    column_ = static_cast<int64_t>(uniform(random, 0, static_cast<double>(size_ - kBall + 1)));
    drift_ = static_cast<int64_t>(uniform(random, 0, 3)) - 1;
    paddle_ = (size_ - kPaddleWidth) / 2;
    last_ = frame();
    return at::stack({last_, last_});
  }

  Reaction advance(int64_t action) override {
    paddle_ = std::clamp<int64_t>(paddle_ + (action - 1) * kMove, 0, size_ - kPaddleWidth);
    if (column_ + drift_ < 0 || column_ + drift_ > size_ - kBall) drift_ = -drift_;
    column_ += drift_;
    row_ += kMove;
    const auto before = std::exchange(last_, frame());
    Reaction reaction{.observation = at::stack({before, last_}), .terminated = row_ == size_ - kBall};
    if (reaction.terminated) {
      const bool caught = column_ + kBall > paddle_ && column_ < paddle_ + kPaddleWidth;
      reaction.reward = caught ? 1 : -1;
    }
    return reaction;
  }

  at::Tensor frame() const {
    auto pixels = at::zeros({size_, size_}, at::kByte);
    const auto paint = [&](int64_t row, int64_t column, int64_t width) {
      pixels.narrow(0, row, kBall).narrow(1, column, width).fill_(255);
    };
    paint(row_, column_, kBall);
    paint(size_ - kBall, paddle_, kPaddleWidth);
    return pixels;
  }

  int64_t size_;
  int64_t row_ = 0, column_ = 0, drift_ = 0;  // of the ball
  int64_t paddle_ = 0;                        // its left column
  at::Tensor last_;
};

}  // namespace

std::unique_ptr<Environment> make_catch_game(const CatchConfig& config) {
  if (config.size < kSmallest || config.size % 2 != 0) {
    throw Error("[catch_game] size is " + std::to_string(config.size) + "; give an even number from " +
                std::to_string(kSmallest) + " on");
  }
  return std::make_unique<CatchGame>(config);
}

}  // namespace remat::zoo
