// tokenizers/post_processor.h -- the special tokens that the model is given around a text.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizers/json_file.h"
#include "tokenizers/vocabulary.h"

namespace remat::tokenizers {

struct Surroundings {
  std::vector<int64_t> before, after;
};

/// Of "post_processor" in tokenizer.json: BertProcessing, ByteLevel (none), RobertaProcessing, Sequence,
/// TemplateProcessing for one text; none where there is none. Throws Error for others, and for ids out of range.
Surroundings read_post_processor(const std::optional<JsonNode>& node);

}  // namespace remat::tokenizers
