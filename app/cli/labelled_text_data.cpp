#include "cli/labelled_text_data.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "cli/fingerprint.h"

namespace remat::cli {

LabelledTextData::LabelledTextData(LabelledTokens tokens, data::Labels labels, const std::string& contents,
                                   int64_t batch, uint64_t seed)
    : tokens_(std::move(tokens)),
      labels_(std::move(labels)),
      batches_(std::ssize(tokens_.texts), batch, seed),
      bytes_(std::ssize(contents)),
      fingerprint_(cli::fingerprint(contents)) {}

Batch LabelledTextData::training_batch(int64_t step, int64_t first, int64_t rows) const {
  return make_batch(batches_.of_step(step), first, rows);
}

int64_t LabelledTextData::evaluation_batches() const { return batches_.count(); }

Batch LabelledTextData::evaluation_batch(int64_t index) const {
  const auto which = batches_.in_order(index);
  return make_batch(which, 0, std::ssize(which));
}

Batch LabelledTextData::make_batch(const std::vector<int64_t>& which, int64_t first, int64_t rows) const {
  const auto text = [&](int64_t i) -> const auto& { return tokens_.texts[static_cast<size_t>(i)]; };
  int64_t longest = 0;
  for (const int64_t i : which) longest = std::max<int64_t>(longest, std::ssize(text(i)));
  Batch batch{.input = at::zeros({rows, 3, longest}, at::kLong), .target = at::empty({rows}, at::kLong)};
  batch.input.select(1, 0).fill_(tokens_.padding);
  auto inputs = batch.input.accessor<int64_t, 3>();
  auto targets = batch.target.accessor<int64_t, 1>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t i = which[static_cast<size_t>(first + row)];
    const int64_t begin = tokens_.pads_left ? longest - std::ssize(text(i)) : 0;
    for (int64_t place = 0; place < std::ssize(text(i)); ++place) {
      inputs[row][0][begin + place] = text(i)[static_cast<size_t>(place)];
      inputs[row][2][begin + place] = 1;
    }
    targets[row] = tokens_.classes[static_cast<size_t>(i)];
  }
  return batch;
}

}  // namespace remat::cli
