// tests/fuzz/check.h -- runs a random program plain and in every way of remat, and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fuzz/machine.h"

namespace remat::fuzz {

/// Sums over the programs of a test, to see that they exercise what they should.
struct Tally {
  int64_t programs = 0;
  int64_t threw = 0;     ///< plain threw, in forward or backward
  int64_t runs = 0;      ///< runs under remat
  int64_t refused = 0;   ///< runs that a remat::Error ended in backward where plain went on
  int64_t recorded = 0;  ///< operators
  int64_t replayed = 0;  ///< operators
  int64_t dropped = 0;   ///< values
  int64_t packed = 0;    ///< values
  int64_t budgets_held = 0;
  int64_t budgets_refused = 0;
  int64_t not_monotone = 0;       ///< a budget refused where a smaller one held
  int64_t planned = 0;            ///< steps that followed a plan to their end ...
  int64_t as_planned = 0;         ///< ... with the peak predicted, to the byte ...
  int64_t above_plan = 0;         ///< ... or a higher one
  double worst_replay_ratio = 0;  ///< replayed operators per recorded one
  uint64_t worst_replay_seed = 0;
  std::map<std::string, int64_t> refusals;  ///< by message without its numbers

  std::string to_string() const;
};

/// What is wrong with remat on this program, or nothing.
using Check = std::function<std::optional<std::string>(const Program&, Tally&)>;

/// drop_all without a session, a session without pressure, drop_all verified, and policy scopes at random places.
std::optional<std::string> check_exact(const Program& program, Tally& tally);
/// The second step of a session, which follows a plan made from the first.
std::optional<std::string> check_plans(const Program& program, Tally& tally);
/// The steps of a session that are the program in other sizes, and with instructions left out: they follow plans that
/// were made for one another.
std::optional<std::string> check_changing_steps(const Program& program, Tally& tally);
/// Budgets from 90 % of plain's activation peak down to near the smallest that works.
std::optional<std::string> check_budgets(const Program& program, Tally& tally);

/// Programs of another kind than the ordinary: everything dropped, random scopes, plans and half of the memory; where
/// nothing but verify promises to see what happens, the verified ones.
std::optional<std::string> check_kind(const Program& program, Tally& tally);
/// Three programs, each in a session on a thread of its own, at the same time.
std::optional<std::string> check_threads(const Program& program, Tally& tally);

/// Leaves out instructions for as long as the check finds the same kind of problem.
Program shrink(Program program, const Check& check, const std::string& problem);
/// The program's text, from a plain run.
std::string listing_of(const Program& program);

/// Says which program runs, for the message of a crash or a hang.
void announce(const Program& program, const char* what);
void install_crash_message();

}  // namespace remat::fuzz
