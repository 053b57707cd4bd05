/* Normalization by layers and groups (norm), and over the batch. */
#include "mathematics.h"
#include "remat_kernels.h"

void remat_norm(const remat_norm_t* a, const float* x, const float* weight, const float* bias, float* y, float* mean,
                float* rstd) {
  const int size = a->channels * a->inner;
  for (int r = 0; r < a->rows; ++r, x += size, y += size) {
    float sum = 0.0f, squares = 0.0f;
    for (int i = 0; i < size; ++i) sum += x[i];
    const float m = sum / (float)size;
    for (int i = 0; i < size; ++i) squares += (x[i] - m) * (x[i] - m);
    const float scale = 1.0f / remat_sqrt(squares / (float)size + a->eps);
    mean[r] = m;
    rstd[r] = scale;
    for (int c = 0; c < a->channels; ++c) {
      const int parameter = r % a->groups * a->channels + c;
      const float w = weight ? weight[parameter] : 1.0f, b = bias ? bias[parameter] : 0.0f;
      for (int i = c * a->inner; i < (c + 1) * a->inner; ++i) y[i] = (x[i] - m) * scale * w + b;
    }
  }
}

void remat_norm_grad_input(const remat_norm_t* a, const float* dy, const float* x, const float* mean, const float* rstd,
                           const float* weight, float* dx) {
  const int size = a->channels * a->inner;
  for (int r = 0; r < a->rows; ++r, dy += size, x += size, dx += size) {
    const float m = mean[r], scale = rstd[r];
    const float* w = weight ? weight + r % a->groups * a->channels : 0;
    float sum = 0.0f, product = 0.0f;
    for (int c = 0; c < a->channels; ++c)
      for (int i = c * a->inner; i < (c + 1) * a->inner; ++i) {
        const float d = w ? dy[i] * w[c] : dy[i];
        sum += d;
        product += d * ((x[i] - m) * scale);
      }
    sum /= (float)size;
    product /= (float)size;
    for (int c = 0; c < a->channels; ++c)
      for (int i = c * a->inner; i < (c + 1) * a->inner; ++i) {
        const float d = w ? dy[i] * w[c] : dy[i];
        dx[i] = (d - sum - (x[i] - m) * scale * product) * scale;
      }
  }
}

void remat_norm_grad_weight(const remat_norm_t* a, const float* dy, const float* x, const float* mean,
                            const float* rstd, const remat_sink* gradient) {
  for (int parameter = 0; parameter < a->groups * a->channels; ++parameter) {
    const int group = parameter / a->channels, c = parameter % a->channels;
    float sum = 0.0f;
    for (int r = group; r < a->rows; r += a->groups) {
      const int at = (r * a->channels + c) * a->inner;
      for (int i = at; i < at + a->inner; ++i) sum += dy[i] * ((x[i] - mean[r]) * rstd[r]);
    }
    remat_put(gradient, parameter, sum);
  }
}

static void normalize(const remat_batch_norm_t* a, int c, const float* x, float mean, float scale, float w, float b,
                      float* y) {
  for (int n = 0; n < a->n; ++n) {
    const int at = (n * a->channels + c) * a->inner;
    for (int i = at; i < at + a->inner; ++i) y[i] = (x[i] - mean) * scale * w + b;
  }
}

void remat_batch_norm(const remat_batch_norm_t* a, const float* x, const float* weight, const float* bias, float* y,
                      float* mean, float* var) {
  const float count = (float)(a->n * a->inner);
  for (int c = 0; c < a->channels; ++c) {
    float sum = 0.0f, squares = 0.0f;
    for (int n = 0; n < a->n; ++n) {
      const int at = (n * a->channels + c) * a->inner;
      for (int i = at; i < at + a->inner; ++i) sum += x[i];
    }
    const float m = sum / count;
    for (int n = 0; n < a->n; ++n) {
      const int at = (n * a->channels + c) * a->inner;
      for (int i = at; i < at + a->inner; ++i) squares += (x[i] - m) * (x[i] - m);
    }
    mean[c] = m;
    var[c] = squares / count;
    normalize(a, c, x, m, 1.0f / remat_sqrt(var[c] + a->eps), weight ? weight[c] : 1.0f, bias ? bias[c] : 0.0f, y);
  }
}

void remat_batch_norm_eval(const remat_batch_norm_t* a, const float* x, const float* weight, const float* bias,
                           const float* mean, const float* var, float* y) {
  for (int c = 0; c < a->channels; ++c)
    normalize(a, c, x, mean[c], 1.0f / remat_sqrt(var[c] + a->eps), weight ? weight[c] : 1.0f, bias ? bias[c] : 0.0f,
              y);
}

static float product_with_dy(const remat_batch_norm_t* a, int c, const float* dy, const float* x, float mean,
                             float scale, float* sum) {
  float product = 0.0f;
  for (int n = 0; n < a->n; ++n) {
    const int at = (n * a->channels + c) * a->inner;
    for (int i = at; i < at + a->inner; ++i) {
      *sum += dy[i];
      product += dy[i] * ((x[i] - mean) * scale);
    }
  }
  return product;
}

void remat_batch_norm_grad_input(const remat_batch_norm_t* a, const float* dy, const float* x, const float* mean,
                                 const float* var, const float* weight, float* dx) {
  const float count = (float)(a->n * a->inner);
  for (int c = 0; c < a->channels; ++c) {
    const float m = mean[c], scale = 1.0f / remat_sqrt(var[c] + a->eps), w = weight ? weight[c] : 1.0f;
    float sum = 0.0f, product = 0.0f;
    if (a->train) product = product_with_dy(a, c, dy, x, m, scale, &sum) / count;
    sum /= count;
    for (int n = 0; n < a->n; ++n) {
      const int at = (n * a->channels + c) * a->inner;
      for (int i = at; i < at + a->inner; ++i)
        dx[i] = a->train ? (dy[i] - sum - (x[i] - m) * scale * product) * scale * w : dy[i] * scale * w;
    }
  }
}

void remat_batch_norm_grad_weight(const remat_batch_norm_t* a, const float* dy, const float* x, const float* mean,
                                  const float* var, const remat_sink* gradient) {
  for (int c = 0; c < a->channels; ++c) {
    float sum = 0.0f;
    remat_put(gradient, c, product_with_dy(a, c, dy, x, mean[c], 1.0f / remat_sqrt(var[c] + a->eps), &sum));
  }
}

void remat_running(const remat_running_t* a, const float* mean, const float* var, float* running_mean,
                   float* running_var) {
  for (int c = 0; c < a->channels; ++c) {
    running_mean[c] = a->momentum * mean[c] + (1.0f - a->momentum) * running_mean[c];
    running_var[c] = a->momentum * (var[c] * a->unbiased) + (1.0f - a->momentum) * running_var[c];
  }
}
