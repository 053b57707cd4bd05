#include "tape/value_rules.h"

#include <cstdlib>
#include <string>

#include <remat/error.h>

namespace remat::value_rules {
namespace {

/// The facts, in words.
std::string text_of(uint32_t facts) {
  constexpr std::array<const char*, kFacts> kNames = {
      "leaf",    "unread", "unavailable", "lost",   "at home", "kept",       "in a form",  "saved",
      "pending", "read",   "wanted",      "anchor", "pinned",  "superseded", "plain only", "replays only"};
  std::string text;
  for (int fact = 0; fact < kFacts; ++fact) {
    if ((facts >> static_cast<uint32_t>(fact) & 1U) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(kNames[static_cast<size_t>(fact)]);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

uint32_t facts_of(const Value& value) {
  uint32_t facts = 0;
  const auto add = [&](bool holds, Fact fact) { facts |= holds ? fact : 0U; };
  add(value.is_leaf(), kLeaf);
  add(value.is_unread_factory(), kUnread);
  add(value.is_unavailable(), kUnavailable);
  add(value.home.loss != Loss::kIntact, kLost);
  add(value.home.storage._unsafe_get_target() != nullptr, kAtHome);
  add(static_cast<bool>(value.kept), kKept);
  add(value.form.contents != nullptr, kInForm);
  add(value.needs.saved > 0, kSaved);
  add(value.needs.pending > 0, kPending);
  add(value.needs.readers > 0, kRead);
  add(value.needs.wanted > 0, kWanted);
  add(value.needs.held_for > 0, kAnchor);
  add(value.is_pinned(), kPinned);
  add(value.successor != kNoId, kSuperseded);
  add(value.account == PlainAccount::kPlainOnly, kPlainOnly);
  add(value.account == PlainAccount::kReplaysOnly, kReplaysOnly);
  return facts;
}

const char* broken_rule(uint32_t facts) {
  for (const StateRule& rule : kStateRules) {
    if ((facts & rule.given) != rule.given) continue;
    if ((facts & rule.then) != rule.then || (facts & rule.never) != 0) return rule.says;
  }
  constexpr uint32_t kHere = kAtHome | kKept | kInForm | kLost;
  if ((facts & (kSaved | kLeaf)) == (kSaved | kLeaf) && (facts & kHere) == 0) {
    return "something holds the contents of a saved leaf";
  }
  return nullptr;
}

bool are_checked() {
  static const bool wanted = std::getenv("REMAT_VALIDATE") != nullptr;
  return wanted;
}

void check(Event event, const Value& value) {
  if (!are_checked() || may_happen(event, facts_of(value))) return;
  throw InternalError("[tape] broken rule: cannot " + std::string(rule_of(event).name) + " a value that is " +
                      text_of(facts_of(value)) + "; please report this");
}

}  // namespace remat::value_rules
