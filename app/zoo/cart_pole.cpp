#include "zoo/cart_pole.h"

#include <cmath>
#include <numbers>
#include <string>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

// In SI units.
constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kMass = 1.0 + kPoleMass;  // of cart and pole
constexpr double kHalfLength = 0.5;        // of the pole
constexpr double kForce = 10.0;
constexpr double kSeconds = 0.02;  // between two actions
constexpr double kFarthest = 2.4;
constexpr double kSteepest = 12 * std::numbers::pi / 180;
constexpr double kLargestStart = 0.05;  // of each of the four numbers

class CartPole : public Environment {
 public:
  explicit CartPole(const CartPoleConfig& config) : Environment(config.seed), longest_(config.longest) {}

  std::vector<int64_t> shape() const override { return {4}; }
  at::ScalarType type() const override { return at::kFloat; }
  int64_t actions() const override { return 2; }

 private:
  at::Tensor begin(std::mt19937_64& random) override {
    for (double* number : {&position_, &speed_, &angle_, &turning_}) {
      *number = uniform(random, -kLargestStart, kLargestStart);
    }
    steps_ = 0;
    return observation();
  }

  /// The equations of motion, without friction, by Euler's method.
  Reaction advance(int64_t action) override {
    const double force = action == 1 ? kForce : -kForce;
    const double sine = std::sin(angle_), cosine = std::cos(angle_);
    const double push = (force + kPoleMass * kHalfLength * turning_ * turning_ * sine) / kMass;
    const double turning_rate =
        (kGravity * sine - cosine * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * cosine * cosine / kMass));
    const double acceleration = push - kPoleMass * kHalfLength * turning_rate * cosine / kMass;
    position_ += kSeconds * speed_;
    speed_ += kSeconds * acceleration;
    angle_ += kSeconds * turning_;
    turning_ += kSeconds * turning_rate;
    const bool terminated = std::abs(position_) > kFarthest || std::abs(angle_) > kSteepest;
    return {observation(), 1.0, terminated, !terminated && ++steps_ >= longest_};
  }

  at::Tensor observation() const { return at::tensor({position_, speed_, angle_, turning_}, at::kFloat); }

  int64_t longest_;
  int64_t steps_ = 0;
  double position_ = 0, speed_ = 0, angle_ = 0, turning_ = 0;
};

}  // namespace

std::unique_ptr<Environment> make_cart_pole(const CartPoleConfig& config) {
  if (config.longest < 1) {
    throw Error("[cart_pole] longest is " + std::to_string(config.longest) + "; give 1 or more steps");
  }
  return std::make_unique<CartPole>(config);
}

}  // namespace remat::zoo
