// zoo/vit.h -- vision transformer (Dosovitskiy et al. 2021): pre-norm encoder over patches and a class token.
#pragma once

#include <memory>

#include "zoo/model.h"

namespace remat::zoo {

/// The default is ViT-B/16. Its modules correspond one by one to those of ViTForImageClassification in Hugging Face's
/// transformers.
struct VitConfig {
  int64_t image = 224;  ///< pixels on each side, a multiple of patch
  int64_t patch = 16;   ///< pixels on each side
  int64_t layers = 12;
  int64_t width = 768;  ///< a multiple of heads
  int64_t heads = 12;
  int64_t hidden = 3072;  ///< of the feed-forward layers
  int64_t classes = 1000;
  double dropout = 0.0;  ///< on embeddings and residual branches, none inside attention; 0 <= dropout < 1
};

/// forward: (batch, 3, image, image) images -> (batch, classes) logits. Throws remat::Error for a config that cannot
/// be.
std::shared_ptr<Model> make_vit(const VitConfig& config);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const VitConfig& config);

}  // namespace remat::zoo
