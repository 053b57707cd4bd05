// zoo/decoder.h -- decoders in the manner of Llama (Touvron et al. 2023): RMS norms, rotary positions, grouped-query
// attention, gated feed-forward layers. What Mistral, Qwen, Gemma and Phi-3 do differently are settings.
#pragma once

#include <memory>

#include "zoo/decoder_config.h"
#include "zoo/model.h"

namespace remat::zoo {

/// forward: (batch, seq) token numbers -> (batch, seq, vocab) logits. No dropout. Throws remat::Error for a config that
/// cannot be.
std::shared_ptr<Model> make_decoder(const DecoderConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const DecoderConfig& config);

}  // namespace remat::zoo
