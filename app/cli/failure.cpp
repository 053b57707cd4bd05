#include "cli/failure.h"

#include <filesystem>
#include <new>
#include <string_view>

#include <c10/util/Exception.h>

#include <remat/error.h>

#include "cli/budget_refusal.h"
#include "cli/wrong_usage.h"

namespace remat::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kBudget = 3;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

constexpr const char* kLostConnection =
    "[ranks] the connection to another process is lost: it has ended, or cannot be reached; its own message says why";

/// Gloo throws it where the process at the other end of a connection has ended. Its type is in headers that this file
/// can do without; while the processes meet, PyTorch makes an error of its own of it.
bool is_lost_connection(const std::exception& error) {
  return std::string_view(error.what()).find("/gloo/") != std::string_view::npos;
}

}  // namespace

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& usage) {
    return {kUsage, usage.what()};
  } catch (const BudgetError& budget) {
    return {kBudget, budget_refusal(budget)};
  } catch (const Error& known) {
    return {kFailure, known.what()};
  } catch (const c10::Error& torch) {
    if (is_lost_connection(torch)) return {kFailure, kLostConnection};
    return {kFailure, "[torch] " + first_line(torch.what_without_backtrace())};
  } catch (const std::filesystem::filesystem_error& files) {  // links that go round, names that are too long
    return {kFailure, "[files] cannot look at '" + files.path1().string() + "' (" + files.code().message() +
                          "); give another path"};
  } catch (const std::bad_alloc&) {
    return {kFailure, "[memory] the machine has no memory left; lower --batch or give a --budget"};
  } catch (const std::exception& other) {
    if (is_lost_connection(other)) return {kFailure, kLostConnection};
    return {kFailure, "[internal] " + std::string(other.what()) + "; please report this"};
  }
}

}  // namespace remat::cli
