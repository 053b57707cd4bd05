#include "cli/failure.h"

#include <exception>
#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace remat::cli {
namespace {

constexpr const char* kOfGloo = "[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer";

TEST(Failure, ALostConnectionIsWhatFollowsFromAnotherProcessWhoeverTells) {
  const std::string expected = "[ranks] the connection to another process is lost";
  for (const auto& error : {std::make_exception_ptr(std::runtime_error(kOfGloo)),
                            std::make_exception_ptr(c10::Error({}, kOfGloo))}) {
    EXPECT_TRUE(failure_of(error).message.starts_with(expected)) << failure_of(error).message;
  }
}

TEST(Failure, OtherErrorsOfPyTorchAreNamedByTheirFirstLine) {
  const c10::Error error({}, "sizes differ\nmore");
  EXPECT_EQ(failure_of(std::make_exception_ptr(error)).message, "[torch] sizes differ");
}

}  // namespace
}  // namespace remat::cli
