#include "cli/step_message.h"

#include <bit>
#include <limits>
#include <new>

#include <gtest/gtest.h>

#include <remat/error.h>

#include "support/expect_error.h"

namespace remat::cli {
namespace {

TEST(StepMessageTest, EveryBitOfAStepArrives) {
  StepResult result;
  result.step = 7;
  result.loss = std::bit_cast<float>(0x7fc00123u);  // a NaN with a payload
  result.seconds = 0.1 + 0.2;
  result.baseline_bytes = 11;
  result.peak_bytes = int64_t{1} << 53 | 1;
  result.gradients = {{"weight", std::numeric_limits<uint64_t>::max(), 1}, {"bias", 0, 2}};
  result.parameters = {{"weight", 3, std::numeric_limits<uint64_t>::max() - 1}};
  const auto line = step_message(result);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = read_step_message(line);
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(std::bit_cast<uint32_t>(read.loss), 0x7fc00123u);
  EXPECT_EQ(read.seconds, result.seconds);
  EXPECT_EQ(read.baseline_bytes, 11);
  EXPECT_EQ(read.peak_bytes, result.peak_bytes);
  EXPECT_EQ(read.gradients, result.gradients);
  EXPECT_EQ(read.parameters, result.parameters);
  EXPECT_FALSE(read.report);
  EXPECT_FALSE(read.head);

  result.report.emplace();
  result.report->decided_by = "auto";
  result.report->replayed = {{"aten::gelu", 2, 0.5, 64}};
  result.head = TileChoice{384, 576, "a trial"};
  const auto with_report = read_step_message(step_message(result));
  ASSERT_TRUE(with_report.report);
  EXPECT_EQ(to_json(*with_report.report), to_json(*result.report));
  EXPECT_EQ(with_report.head, result.head);
}

// Throws `error`, sends it and catches what arrives.
template <class Thrown>
std::exception_ptr sent(const Thrown& error) {
  try {
    throw_if_error(error_message(std::make_exception_ptr(error)));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

TEST(StepMessageTest, ErrorsStayWhatTheyWere) {
  try {
    std::rethrow_exception(sent(BudgetError("[budget] too \xff small", 10, 20, 30, 40, 50.0)));
  } catch (const BudgetError& error) {
    EXPECT_STREQ(error.what(), "[budget] too \xef\xbf\xbd small");
    EXPECT_EQ(error.budget_bytes(), 10);
    EXPECT_EQ(error.lower_bound_bytes(), 20);
    EXPECT_EQ(error.smallest_known_bytes(), 30);
    EXPECT_EQ(error.needed_bytes(), 40);
    EXPECT_EQ(error.needed_percent(), 50);
  }
  try {
    std::rethrow_exception(sent(BudgetError("[budget]", 10, 20, std::nullopt)));
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.smallest_known_bytes(), std::nullopt);
    EXPECT_EQ(error.needed_percent(), std::nullopt);
  }
  EXPECT_ERROR(std::rethrow_exception(sent(Error("[data] wrong"))), "[data] wrong");
  EXPECT_ERROR(std::rethrow_exception(sent(std::bad_alloc())), "[memory] the machine has no memory left");
  EXPECT_ERROR(std::rethrow_exception(sent(std::runtime_error("other"))), "[internal] other; please report this");
  throw_if_error(step_message({}));  // no error
}

}  // namespace
}  // namespace remat::cli
