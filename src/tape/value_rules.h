// src/tape/value_rules.h -- which states a value may be in, and what may happen to it in each, as two closed tables.
//
// A state is a set of facts, a bit for each. Residency is the only class that changes a value: each of its methods is
// an event here, which says what the value must and must not be, and what it is afterwards.
#pragma once

#include <array>
#include <cstdint>

#include "tape/value.h"

namespace remat::value_rules {

enum Fact : uint32_t {
  kLeaf = 1U << 0U,          ///< no operation of the record makes it
  kUnread = 1U << 1U,        ///< a factory's result that nothing has read
  kUnavailable = 1U << 2U,   ///< a leaf for which nothing is held
  kLost = 1U << 3U,          ///< a leaf whose contents are gone for good
  kAtHome = 1U << 4U,        ///< a storage has its contents, or had them until it was emptied
  kKept = 1U << 5U,          ///< the record has a reference to that storage, or to a copy
  kInForm = 1U << 6U,        ///< the record holds the contents packed, or in a file
  kSaved = 1U << 7U,         ///< saved tensors refer to it
  kPending = 1U << 8U,       ///< one of them has not been unpacked in this round
  kRead = 1U << 9U,          ///< a recorded operation reads it
  kWanted = 1U << 10U,       ///< a replay in progress is going to read it
  kAnchor = 1U << 11U,       ///< a policy scope holds it
  kPinned = 1U << 12U,       ///< it is never evicted
  kSuperseded = 1U << 13U,   ///< an in-place write made another value of it, to which its saved tensors went over
  kPlainOnly = 1U << 14U,    ///< plain PyTorch would hold it, and it is not there
  kReplaysOnly = 1U << 15U,  ///< plain PyTorch has freed it
};
inline constexpr int kFacts = 16;

uint32_t facts_of(const Value& value);

/// A value with all of `given` has all of `then` and none of `never`.
struct StateRule {
  const char* says;
  uint32_t given, then, never;
};
inline constexpr std::array kStateRules = {
    StateRule{"only a leaf is unavailable, and nothing of it is held", kUnavailable, kLeaf, kUnread | kKept | kInForm},
    StateRule{"only a leaf's contents can be lost, and then none are held", kLost, kLeaf, kKept},
    StateRule{"a tensor that is to be unpacked is saved", kPending, kSaved, 0},
    StateRule{"saved tensors of a value that was written over refer to its successor", kSuperseded, 0, kSaved},
    StateRule{"what plain alone holds is saved, and nowhere but in a form", kPlainOnly, kSaved,
              kKept | kAtHome | kReplaysOnly},
    StateRule{"only what operations make again is held in a form", kInForm, 0, kLeaf},
};
/// What the facts break of kStateRules and, of a saved leaf, that something must hold its contents; null: nothing.
const char* broken_rule(uint32_t facts);

/// In the order of kEventRules.
enum class Event : uint8_t {
  kKeep,
  kEvict,
  kPack,
  kHold,
  kDropForm,
  kRestore,
  kRelease,
  kLose,
  kMoveToCopy,
  kFollow,
  kLeavePlain,
  kSupersede,
  kHandOver,
  kBecomeLeaf,
  kBecomeUnavailable,
  kSave,
  kUnpack,
  kEndSaved,
  kBeginRound,
  kEndRead,
  kEndWanted,
  kEndAnchor,
};

/// An event may happen to a value with all of `needs` and none of `forbids`; then it has all of `gains`, none of
/// `loses`.
struct EventRule {
  Event event;
  const char* name;
  uint32_t needs, forbids, gains, loses;
};
inline constexpr std::array kEventRules = {
    EventRule{Event::kKeep, "keep", kAtHome, kLost | kUnavailable, kKept, 0},
    EventRule{Event::kEvict, "evict", kKept, kLeaf | kPinned, 0, kKept | kAtHome},
    EventRule{Event::kPack, "pack", kKept, kLeaf | kPinned, 0, 0},
    EventRule{Event::kHold, "hold in a form", kKept, kLeaf | kPinned, kInForm, 0},
    EventRule{Event::kDropForm, "drop the form of", kInForm, 0, 0, kInForm},
    EventRule{Event::kRestore, "restore", 0, kLeaf, kAtHome, kPlainOnly},
    EventRule{Event::kRelease, "release", 0, kSaved, 0, kKept | kInForm},
    EventRule{Event::kLose, "lose", 0, 0, 0, kKept | kAtHome},
    EventRule{Event::kMoveToCopy, "copy before a write to", kLeaf, kSaved | kUnavailable | kLost, 0, kAtHome},
    EventRule{Event::kFollow, "follow the tensor of", kLeaf | kKept, kUnavailable, kAtHome | kKept, 0},
    EventRule{Event::kLeavePlain, "take out of plain's account", 0, kSaved, kReplaysOnly, kPlainOnly},
    EventRule{Event::kSupersede, "write over", kAtHome, kSuperseded, 0, kKept | kAtHome | kSaved},
    EventRule{Event::kHandOver, "hand over the memory of", kAtHome, kSuperseded, kSuperseded, kKept | kAtHome | kSaved},
    EventRule{Event::kBecomeLeaf, "make a leaf of", kAtHome, 0, kLeaf, kUnread | kUnavailable | kInForm},
    EventRule{Event::kBecomeUnavailable, "hold no more", kAtHome, kSaved, kLeaf | kUnavailable,
              kUnread | kKept | kInForm},
    EventRule{Event::kSave, "save", kAtHome, kLeaf | kUnread | kSuperseded, kSaved, 0},
    EventRule{Event::kUnpack, "unpack", kPending, 0, 0, 0},
    EventRule{Event::kEndSaved, "release a saved tensor of", kSaved, 0, 0, 0},
    EventRule{Event::kBeginRound, "begin a round of", kSaved, 0, kPending, 0},
    EventRule{Event::kEndRead, "take a reader from", kRead, 0, 0, 0},
    EventRule{Event::kEndWanted, "end a replay's use of", kWanted, 0, 0, 0},
    EventRule{Event::kEndAnchor, "take a policy scope from", kAnchor, 0, 0, 0},
};
inline const EventRule& rule_of(Event event) { return kEventRules[static_cast<size_t>(event)]; }
inline bool may_happen(Event event, uint32_t facts) {
  const EventRule& rule = rule_of(event);
  return (facts & rule.needs) == rule.needs && (facts & rule.forbids) == 0;
}

/// Are events looked at? Only where the environment sets REMAT_VALIDATE, as the tests do.
bool are_checked();
/// Throws InternalError where they are, and `event` may not happen to the value.
void check(Event event, const Value& value);

}  // namespace remat::value_rules
