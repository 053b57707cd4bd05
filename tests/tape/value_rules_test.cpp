// Every state that the rules allow, and every event that may happen in it: what the value is afterwards.
#include "tape/value_rules.h"

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <remat/error.h>

#include "tape/packing.h"
#include "tape/residency.h"

namespace remat {
namespace rules = value_rules;

/// One value with any facts, and what events need beside it.
class ResidencyInAnyState {
 public:
  static constexpr int64_t kBytes = 64;

  explicit ResidencyInAnyState(uint32_t facts) : packed_(Packed::of(*home, kBytes, /*element_bytes=*/4)) {
    Value& value = values.values_.emplace_back();
    value.bytes = value.extent = kBytes;
    value.producer = has(facts, rules::kLeaf) ? kNoId : 0;
    if (has(facts, rules::kUnread)) value.origin = Origin::kUndefined;
    if (has(facts, rules::kUnavailable)) value.origin = Origin::kUnavailable;
    if (has(facts, rules::kLost)) value.home.loss = Loss::kEmptied;
    if (has(facts, rules::kAtHome)) values.set_home(id, home);
    if (has(facts, rules::kKept)) value.kept = home;
    if (has(facts, rules::kInForm)) value.form.contents = packed_;
    value.form.element_bytes = 4;
    value.needs.saved = has(facts, rules::kSaved) ? 2 : 0;
    value.needs.pending = has(facts, rules::kPending) ? 1 : 0;
    value.needs.readers = has(facts, rules::kRead) ? 1 : 0;
    value.needs.wanted = has(facts, rules::kWanted) ? 1 : 0;
    value.needs.held_for = has(facts, rules::kAnchor) ? 1 : 0;
    if (has(facts, rules::kPinned)) value.policy.retention = Retention::kPinned;
    if (has(facts, rules::kPlainOnly)) value.account = PlainAccount::kPlainOnly;
    if (has(facts, rules::kReplaysOnly)) value.account = PlainAccount::kReplaysOnly;
    if (has(facts, rules::kSuperseded)) {
      value.successor = 1;
      values.values_.emplace_back();
    }
  }

  static bool has(uint32_t facts, rules::Fact fact) { return (facts & fact) != 0; }
  uint32_t facts() const { return rules::facts_of(values[id]); }

  /// Has it happen as callers do, who see to what the methods leave to them.
  void happen(rules::Event event) {
    using rules::Event;
    switch (event) {
      case Event::kKeep:
        return values.keep(id, home);
      case Event::kEvict:
        return values.evict(id);
      case Event::kPack:
        EXPECT_TRUE(values.pack(id));
        return;
      case Event::kHold:
        return values.hold(id, packed_);
      case Event::kDropForm:
        values.drop_form(id);
        return;
      case Event::kRestore:
        return values.restore(id, other);
      case Event::kRelease:
        return values.release(id, /*for_replays=*/false);
      case Event::kLose:
        return values.lose(id, Loss::kEmptied);
      case Event::kMoveToCopy:
        return values.move_to_copy(id, other);
      case Event::kFollow:
        return values.follow(id, other);
      case Event::kLeavePlain:
        return values.leave_plain(id);
      case Event::kSupersede:
        return keep_leaf(values.supersede(id, home));
      case Event::kHandOver:
        return keep_leaf(values.hand_over(id, home, *tensor.unsafeGetTensorImpl()));
      case Event::kBecomeLeaf:
        values.become_leaf(id);
        if (!has(facts(), rules::kLost)) values.keep(id, home);
        return;
      case Event::kBecomeUnavailable:
        return values.become_unavailable(id);
      case Event::kSave:
        values.add_saved(id, /*now=*/true);
        return values.keep(id, home);
      case Event::kUnpack:
        values.note_unpacked(id);
        return;
      case Event::kEndSaved: {
        const bool pending = values[id].needs.pending == values[id].needs.saved;
        if (values.remove_saved(id, pending) && values[id].account == PlainAccount::kPlainOnly) values.leave_plain(id);
        return;
      }
      case Event::kBeginRound:
        return values.begin_round(id);
      case Event::kEndRead:
        return values.remove_reader(id);
      case Event::kEndWanted:
        return values.stop_wanting(id);
      case Event::kEndAnchor:
        values.remove_anchor(id);
        return;
    }
    FAIL() << "an event without a test";
  }
  void set_saved(uint32_t saved) { values.values_[id].needs.saved = saved; }

  static StoragePtr storage() {
    auto made = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), kBytes,
                                                      c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true);
    std::memset(made->mutable_data(), 0, kBytes);
    return made;
  }

  StepCounts counts;
  Residency values{counts};
  const ValueId id = 0;
  const StoragePtr home = storage(), other = storage();

 private:
  void keep_leaf(ValueId leaf) {
    values.keep(leaf, home);
    EXPECT_EQ(rules::broken_rule(rules::facts_of(values[leaf])), nullptr);
    EXPECT_EQ(values.latest(id), values[id].successor == kNoId ? id : leaf);
  }

  const at::Tensor tensor{c10::make_intrusive<at::TensorImpl>(
      c10::Storage(home), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>())};
  std::shared_ptr<Packed> packed_;
};

namespace {

/// Facts that no value can have at a time, by how it is made.
bool is_a_value(uint32_t facts) {
  constexpr uint32_t kBoth = rules::kUnread | rules::kUnavailable;
  return (facts & kBoth) != kBoth;
}

std::string name(const rules::EventRule& rule, uint32_t facts) { return rule.name + (" of " + std::to_string(facts)); }

TEST(ValueRules, EveryEventInEveryStateLeadsToAState) {
  int states = 0;
  int happened = 0;
  for (uint32_t facts = 0; facts < 1U << rules::kFacts; ++facts) {
    if (!is_a_value(facts) || rules::broken_rule(facts) != nullptr) continue;
    ++states;
    for (const rules::EventRule& rule : rules::kEventRules) {
      if (!rules::may_happen(rule.event, facts)) continue;
      for (const uint32_t saved : {1U, 2U}) {
        ResidencyInAnyState state(facts);
        if ((facts & rules::kSaved) != 0) state.set_saved(saved);
        ASSERT_EQ(state.facts(), facts);
        state.happen(rule.event);
        const uint32_t after = state.facts();
        ASSERT_EQ(after & rule.gains, rule.gains) << name(rule, facts);
        ASSERT_EQ(after & rule.loses, 0U) << name(rule, facts);
        const char* const broken = rules::broken_rule(after);
        ASSERT_EQ(broken, nullptr) << name(rule, facts) << ": " << broken;
        state.values.validate_homes();
        ++happened;
        if ((facts & rules::kSaved) == 0) break;
      }
    }
  }
  EXPECT_GT(states, 1000);
  EXPECT_GT(happened, 10 * states);
}

TEST(ValueRules, AreInTheOrderOfTheirEvents) {
  for (size_t i = 0; i < rules::kEventRules.size(); ++i) EXPECT_EQ(static_cast<size_t>(rules::kEventRules[i].event), i);
}

TEST(ValueRules, RefuseWhatMayNotHappen) {
  if (!rules::are_checked()) GTEST_SKIP() << "needs REMAT_VALIDATE=1, as ctest sets it";
  ResidencyInAnyState leaf(rules::kLeaf | rules::kAtHome | rules::kKept);
  try {
    leaf.values.evict(leaf.id);
    FAIL() << "evicted a leaf";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(),
                 "[tape] broken rule: cannot evict a value that is leaf, at home, kept; please report this");
  }
}

}  // namespace
}  // namespace remat
