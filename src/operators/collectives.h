// src/operators/collectives.h -- operators of collective communication: every process has to take part, so that no
// replay may run one, and most write to tensors that their schemas do not mark.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/function_schema.h>
#include <c10/util/SmallVector.h>

namespace remat {

/// `name`: "c10d::allreduce_".
bool is_collective(std::string_view name);

/// The arguments of a collective that it may write to, by position: during the call or until it has been waited for.
c10::SmallVector<uint16_t, 2> written_by_collective(const c10::FunctionSchema& schema);

}  // namespace remat
