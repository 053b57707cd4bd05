// Bit-exactness of PyTorch's layers, one family at a time.
#include "support/compare.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

Outcome finish(const at::Tensor& loss, const std::vector<at::Tensor>& leaves) {
  loss.backward();
  Outcome outcome;
  outcome.add("loss", loss);
  for (const auto& leaf : leaves) {
    const auto& grad = leaf.grad();
    outcome.add("leaf", grad.defined() && grad.is_sparse() ? grad.to_dense() : grad);
  }
  outcome.add_generator();
  return outcome;
}

/// The layer between two that make its input and its gradient depend on parameters.
template <class Layer>
void expect_exact_layer(const std::function<Layer()>& make, std::vector<int64_t> sizes) {
  expect_exact([&] {
    auto layer = make();
    auto x = torch::randn(sizes).requires_grad_();
    auto y = layer->forward(x.sin() * 1.5);
    auto loss = (y * y.tanh()).sum();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add("grad of x", x.grad());
    outcome.add_module(*layer);
    outcome.add_generator();
    return outcome;
  });
}

TEST(Layers, Convolutions) {
  expect_exact_layer<nn::Conv1d>([] { return nn::Conv1d(nn::Conv1dOptions(3, 6, 3).stride(2)); }, {2, 3, 11});
  expect_exact_layer<nn::Conv2d>([] { return nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(2).padding(1)); },
                                 {2, 4, 7, 7});
  expect_exact_layer<nn::Conv2d>([] { return nn::Conv2d(nn::Conv2dOptions(4, 4, 3).dilation(2).bias(false)); },
                                 {2, 4, 9, 9});
  expect_exact_layer<nn::Conv3d>([] { return nn::Conv3d(nn::Conv3dOptions(2, 4, 2)); }, {1, 2, 4, 4, 4});
  expect_exact_layer<nn::ConvTranspose1d>([] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 5, 3)); },
                                          {2, 3, 8});
  expect_exact_layer<nn::ConvTranspose2d>(
      [] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 5, 3).stride(2)); }, {2, 3, 5, 5});
  expect_exact_layer<nn::ConvTranspose3d>([] { return nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2)); },
                                          {1, 2, 3, 3, 3});
}

TEST(Layers, Normalizations) {
  expect_exact_layer<nn::GroupNorm>([] { return nn::GroupNorm(nn::GroupNormOptions(2, 6)); }, {2, 6, 5, 5});
  expect_exact_layer<nn::LayerNorm>([] { return nn::LayerNorm(nn::LayerNormOptions({5, 4})); }, {3, 5, 4});
  expect_exact_layer<nn::InstanceNorm2d>(
      [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(6).affine(true).track_running_stats(true)); },
      {2, 6, 5, 5});
  expect_exact_layer<nn::BatchNorm1d>([] { return nn::BatchNorm1d(nn::BatchNorm1dOptions(6).momentum(std::nullopt)); },
                                      {4, 6});
  expect_exact_layer<nn::BatchNorm3d>([] { return nn::BatchNorm3d(3); }, {2, 3, 3, 3, 3});
  expect_exact_layer<nn::LocalResponseNorm>([] { return nn::LocalResponseNorm(2); }, {2, 6, 5, 5});
}

TEST(Layers, BatchNormInEvaluationThenTraining) {
  expect_exact([] {
    nn::BatchNorm2d norm(3);
    auto x = torch::randn({2, 3, 4, 4}).requires_grad_();
    norm->eval();
    auto a = norm->forward(x.sin()).exp();
    norm->train();
    auto b = norm->forward(a * x).tanh();
    auto c = norm->forward(b.exp());
    norm->eval();
    auto d = norm->forward(c * b).sigmoid();  // reads what training wrote
    auto outcome = finish((a * b * c * d).sum(), {x, norm->weight, norm->bias});
    outcome.add_module(*norm);
    return outcome;
  });
}

TEST(Layers, Pooling) {
  expect_exact_layer<nn::MaxPool2d>([] { return nn::MaxPool2d(nn::MaxPool2dOptions(2).padding(1)); }, {2, 3, 7, 7});
  expect_exact_layer<nn::AvgPool2d>([] { return nn::AvgPool2d(nn::AvgPool2dOptions(2)); }, {2, 3, 7, 7});
  expect_exact_layer<nn::AdaptiveAvgPool2d>(
      [] {
        return nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 3}));
      },
      {2, 3, 7, 7});
  expect_exact_layer<nn::AdaptiveMaxPool1d>([] { return nn::AdaptiveMaxPool1d(nn::AdaptiveMaxPool1dOptions(3)); },
                                            {2, 3, 7});
  expect_exact_layer<nn::LPPool2d>([] { return nn::LPPool2d(nn::LPPool2dOptions(2, 2)); }, {2, 3, 6, 6});
  expect_exact_layer<nn::FractionalMaxPool2d>(
      [] {
        return nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(std::vector<int64_t>{3, 3}));
      },
      {2, 3, 7, 7});
}

TEST(Layers, RandomOnes) {
  expect_exact_layer<nn::Dropout2d>([] { return nn::Dropout2d(0.4); }, {2, 6, 5, 5});
  expect_exact_layer<nn::AlphaDropout>([] { return nn::AlphaDropout(0.4); }, {4, 9});
  expect_exact_layer<nn::FeatureAlphaDropout>([] { return nn::FeatureAlphaDropout(0.4); }, {2, 6, 5, 5});
  expect_exact_layer<nn::RReLU>([] { return nn::RReLU(); }, {4, 9});
}

template <class Recurrent, class Options>
void expect_exact_recurrent(Options options) {
  expect_exact([&] {
    Recurrent net(options);
    auto x = torch::randn({5, 3, 8}).requires_grad_();
    auto result = net->forward(x.sin());
    auto loss = (std::get<0>(result) * std::get<0>(result).tanh()).sum();
    loss.backward();
    Outcome outcome;
    outcome.add("grad of x", x.grad());
    outcome.add_module(*net);
    outcome.add_generator();
    return outcome;
  });
}

TEST(Layers, Lstm) {
  expect_exact_recurrent<nn::LSTM>(nn::LSTMOptions(8, 6));
  expect_exact_recurrent<nn::LSTM>(nn::LSTMOptions(8, 6).num_layers(2).bidirectional(true).dropout(0.3));
  expect_exact_recurrent<nn::LSTM>(nn::LSTMOptions(8, 6).bias(false).batch_first(true));
  expect_exact_recurrent<nn::LSTM>(nn::LSTMOptions(8, 6).proj_size(3));
}
TEST(Layers, Gru) {
  expect_exact_recurrent<nn::GRU>(nn::GRUOptions(8, 6));
  expect_exact_recurrent<nn::GRU>(nn::GRUOptions(8, 6).num_layers(2).bidirectional(true).dropout(0.3));
}
TEST(Layers, Rnn) {
  expect_exact_recurrent<nn::RNN>(nn::RNNOptions(8, 6));
  expect_exact_recurrent<nn::RNN>(nn::RNNOptions(8, 6).num_layers(2).nonlinearity(torch::kReLU).dropout(0.3));
}

TEST(Layers, RecurrentCells) {
  expect_exact([] {
    nn::LSTMCell lstm(4, 6);
    nn::GRUCell gru(6, 6);
    auto x = torch::randn({5, 3, 4}).requires_grad_();
    auto h = torch::zeros({3, 6}), c = torch::zeros({3, 6}), g = torch::zeros({3, 6});
    for (int64_t t = 0; t < 5; ++t) {
      std::tie(h, c) = lstm->forward(x[t], std::make_tuple(h, c));
      g = gru->forward(h, g);
    }
    auto outcome = finish((g * c).sum(), {x});
    outcome.add_module(*lstm);
    outcome.add_module(*gru);
    return outcome;
  });
}

TEST(Layers, AttentionVariants) {
  for (const int kind : {0, 1, 2, 3, 4, 5}) {
    expect_exact([&] {
      auto x = torch::randn({2, 4, 6, 8}).requires_grad_();
      auto q = x.sin(), k = x.cos(), v = x.tanh();
      at::Tensor y;
      if (kind == 0) y = at::scaled_dot_product_attention(q, k, v);
      if (kind == 1) y = at::scaled_dot_product_attention(q, k, v, {}, 0.3);
      if (kind == 2) y = at::scaled_dot_product_attention(q, k, v, torch::randn({6, 6}), 0.0);
      if (kind == 3) y = at::scaled_dot_product_attention(q, k, v, torch::rand({6, 6}) > 0.3, 0.2);
      if (kind == 4)
        y = at::scaled_dot_product_attention(q, k.narrow(1, 0, 2), v.narrow(1, 0, 2), {}, 0.0, true, 0.5, true);
      if (kind == 5) y = std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, 0.2, false));
      return finish((y * y.sin()).sum(), {x});
    });
  }
  expect_exact_layer<nn::TransformerEncoderLayer>(
      [] { return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)); },
      {5, 3, 8});
}

TEST(Layers, EmbeddingsWithDenseAndSparseGradients) {
  for (const bool sparse : {false, true}) {
    expect_exact([&] {
      auto table = torch::randn({20, 6}).requires_grad_();
      auto tokens = torch::randint(20, {3, 5});
      auto y = at::embedding(table, tokens, 2, false, sparse).sin();
      auto z = std::get<0>(at::embedding_bag(table, tokens.view({15}), torch::arange(0, 15, 5), false, 1, sparse));
      return finish((y * y.exp()).sum() + z.cos().sum(), {table});
    });
  }
}

TEST(Layers, IndexedWrites) {
  expect_exact([] {
    auto x = torch::randn({6, 5}).requires_grad_(), v = torch::randn({2, 5}).requires_grad_();
    auto h = x * 1.5;
    h.index_put_({torch::tensor({1, 3})}, v.sin());
    h.index_put_({torch::tensor({1, 1})}, v.exp(), /*accumulate=*/true);
    auto s = torch::zeros({6, 5}).scatter_add(0, torch::randint(6, {6, 5}), h.tanh());
    auto t = s.clone().scatter_(1, torch::randint(5, {6, 2}), h.narrow(1, 0, 2));
    auto m = t.masked_scatter(t > 0, h.exp()).index_add(0, torch::tensor({0, 5}), v);
    auto r = m.scatter_reduce(0, torch::randint(6, {6, 5}), h.cos(), "amax");
    return finish((m * r * s.sin()).sum(), {x, v});
  });
}

TEST(Layers, ComplexNumbersAndConjugateViews) {
  expect_exact([] {
    auto x = torch::randn({6, 5}).requires_grad_(), y = torch::randn({6, 5}).requires_grad_();
    auto z = at::complex(x.sin(), y.cos());
    auto c = z.conj();
    auto product = c.mm(z.t().conj().t().t()) * 0.5;
    auto imag = at::imag(c) * at::real(z);  // a negative view
    auto spectrum = at::fft_rfft(x * y);
    auto back = at::fft_irfft(spectrum * spectrum.conj(), 5);
    auto pairs = at::view_as_real(z * c);
    return finish(product.abs().sum() + (imag * imag.sin()).sum() + back.pow(2).sum() + pairs.sin().sum(), {x, y});
  });
}

TEST(Layers, SparseMatrices) {
  expect_exact([] {
    auto w = torch::randn({4, 3}).requires_grad_(), values = torch::randn({5}).requires_grad_();
    auto indices = torch::tensor({{0, 1, 2, 2, 3}, {1, 0, 3, 1, 2}});
    auto sparse = torch::sparse_coo_tensor(indices, values.exp(), {4, 4});
    auto y = at::_sparse_mm(sparse, w.sin()).tanh();
    auto z = sparse.to_dense().mm(w).sin();
    return finish((y * y.exp() * z).sum(), {w, values});
  });
}

TEST(Layers, OneDnnTensors) {
  expect_exact([] {
    auto x = torch::randn({2, 4, 6, 6}).requires_grad_();
    auto h = x.sin().to_mkldnn();
    auto y = h.relu().to_dense();
    return finish((y * y.exp()).sum(), {x});
  });
}

TEST(Layers, QuantizedAndFakeQuantizedTensors) {
  expect_exact([] {
    auto x = torch::randn({6, 5}).requires_grad_();
    auto h = x.sin();
    auto q = at::quantize_per_tensor(h.detach(), 0.1, 10, torch::kQUInt8);
    auto fake = at::fake_quantize_per_tensor_affine(h * 2, 0.05, 0, -128, 127);
    return finish((fake * fake.sin() * q.dequantize()).sum(), {x});
  });
}

TEST(Layers, LinearAlgebra) {
  expect_exact([] {
    auto x = torch::randn({5, 5}, torch::kDouble).requires_grad_();
    auto a = x.mm(x.t()) + torch::eye(5, torch::kDouble);
    auto l = at::linalg_cholesky(a.sin() * 0.01 + torch::eye(5, torch::kDouble));
    auto s = std::get<0>(at::linalg_solve_ex(a, l.exp()));
    auto [q, r] = at::linalg_qr(x.tanh());
    auto [u, sv, vh] = at::linalg_svd(a);
    return finish((s * q).sum() + r.abs().sum() + at::linalg_det(a) * 1e-3 + sv.log().sum(), {x});
  });
}

TEST(Layers, Losses) {
  using Loss = std::function<at::Tensor(const at::Tensor& h, const at::Tensor& classes)>;
  const Loss losses[] = {
      [](const auto& h, const auto& c) { return at::cross_entropy_loss(h, c, {}, 1, -100, 0.1); },
      [](const auto& h, const auto& c) { return at::nll_loss(h.log_softmax(1), c); },
      [](const auto& h, const auto&) {
        return at::binary_cross_entropy_with_logits(h.tanh(), torch::rand({6, 5}));
      },
      [](const auto& h, const auto&) {
        return at::binary_cross_entropy(h.sigmoid(), torch::rand({6, 5}));
      },
      [](const auto& h, const auto&) { return at::huber_loss(h.exp(), h); },
      [](const auto& h, const auto&) { return at::smooth_l1_loss(h.cos(), h); },
      [](const auto& h, const auto&) {
        return at::kl_div(h.log_softmax(1), torch::rand({6, 5}).softmax(1));
      },
      [](const auto& h, const auto&) { return at::cosine_embedding_loss(h, h.sin(), torch::ones({6})); },
      [](const auto& h, const auto& c) { return at::multi_margin_loss(h, c); },
      [](const auto& h, const auto&) {
        auto scores = torch::randn({7, 2, 5}) + h.sum();
        return at::ctc_loss(scores.log_softmax(2), torch::randint(1, 5, {2, 3}), {7, 7}, {3, 3});
      }};
  for (size_t i = 0; i < std::size(losses); ++i) {
    SCOPED_TRACE("loss " + std::to_string(i));
    expect_exact([&] {
      auto x = torch::randn({6, 5}).requires_grad_();
      return finish(losses[i](x.sin() * 2, torch::randint(5, {6})), {x});
    });
  }
}

TEST(Layers, ZeroSizedAndZeroDimensional) {
  expect_exact([] {
    auto x = torch::randn({0, 5}).requires_grad_(), s = torch::randn({}).requires_grad_(),
         w = torch::randn({5, 3}).requires_grad_();
    auto y = x.sin().mm(w).exp();
    auto z = (s.sin() * s).exp() + y.sum();
    return finish(z * z.tanh() + at::cat({y, y}, 0).sum(), {x, w});
  });
}

}  // namespace
}  // namespace remat::test
