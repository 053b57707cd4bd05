// The command `remat`: exit codes and error messages.
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "cli/compare.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/train.h"

namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kBudget = 3;

int fail(int code, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "remat: %s\n", message.c_str());
  return code;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int main(int count, char** words) {
  using namespace remat::cli;
  try {
    const auto command = parse_options({words + 1, words + count});
    if (command.kind == Command::Kind::kPrint) {
      std::fputs(command.text.c_str(), stdout);
      return 0;
    }
    catch_signals();
    return command.kind == Command::Kind::kTrain ? run_train(command.settings) : run_compare(command.settings);
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const remat::BudgetError& error) {
    return fail(kBudget, error.what());
  } catch (const remat::Error& error) {
    return fail(kFailure, error.what());
  } catch (const c10::Error& error) {
    return fail(kFailure, "[torch] " + first_line(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return fail(kFailure, "[memory] the machine has no memory left; lower --batch or give a --budget");
  } catch (const std::exception& error) {
    return fail(kFailure, "[internal] " + std::string(error.what()) + "; please report this");
  }
}
