// src/tape/default_type.h -- does the default type (torch.set_default_dtype()) decide what type a call computes in?
#pragma once

#include "tape/call.h"

namespace remat {

/// Before the call runs: may it?
void find_default_type(Call& call, c10::ArrayRef<const c10::IValue> inputs);
/// After it has run: its results tell. Where one type is known to have been made, the call's constants say so.
void settle_default_type(Call& call, const CallEnd& end, Program& program);

}  // namespace remat
