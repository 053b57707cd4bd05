/* Embeddings, softmax, losses. */
#include "mathematics.h"
#include "remat_kernels.h"

void remat_embedding(const remat_embedding_t* a, const float* table, const int32_t* index, float* y) {
  for (int i = 0; i < a->n; ++i)
    for (int j = 0; j < a->columns; ++j) *y++ = table[index[i] * a->columns + j];
}

/* By row of the table, so that no gradient of its size is needed. */
void remat_embedding_grad(const remat_embedding_t* a, const float* dy, const int32_t* index,
                          const remat_sink* gradient) {
  for (int row = 0; row < a->rows; ++row)
    for (int j = 0; j < a->columns; ++j) {
      float sum = 0.0f;
      if (row != a->padding)
        for (int i = 0; i < a->n; ++i)
          if (index[i] == row) sum += dy[i * a->columns + j];
      remat_put(gradient, row * a->columns + j, sum);
    }
}

static float highest(const float* x, int n) {
  float most = x[0];
  for (int i = 1; i < n; ++i)
    if (x[i] > most) most = x[i];
  return most;
}

void remat_softmax(const remat_softmax_t* a, const float* x, float* y) {
  for (int r = 0; r < a->rows; ++r, x += a->columns, y += a->columns) {
    const float most = highest(x, a->columns);
    float sum = 0.0f;
    for (int i = 0; i < a->columns; ++i) {
      y[i] = remat_exp(x[i] - most);
      sum += y[i];
    }
    const float scale = 1.0f / sum;
    for (int i = 0; i < a->columns; ++i) y[i] *= scale;
  }
}

void remat_softmax_grad(const remat_softmax_t* a, const float* dy, const float* y, float* dx) {
  for (int r = 0; r < a->rows; ++r, dy += a->columns, y += a->columns, dx += a->columns) {
    float sum = 0.0f;
    for (int i = 0; i < a->columns; ++i) sum += dy[i] * y[i];
    for (int i = 0; i < a->columns; ++i) dx[i] = (dy[i] - sum) * y[i];
  }
}

void remat_log_softmax(const remat_softmax_t* a, const float* x, float* y) {
  for (int r = 0; r < a->rows; ++r, x += a->columns, y += a->columns) {
    const float most = highest(x, a->columns);
    float sum = 0.0f;
    for (int i = 0; i < a->columns; ++i) sum += remat_exp(x[i] - most);
    const float log = remat_log(sum);
    for (int i = 0; i < a->columns; ++i) y[i] = x[i] - most - log;
  }
}

void remat_log_softmax_grad(const remat_softmax_t* a, const float* dy, const float* y, float* dx) {
  for (int r = 0; r < a->rows; ++r, dy += a->columns, y += a->columns, dx += a->columns) {
    float sum = 0.0f;
    for (int i = 0; i < a->columns; ++i) sum += dy[i];
    for (int i = 0; i < a->columns; ++i) dx[i] = dy[i] - remat_exp(y[i]) * sum;
  }
}

void remat_nll_loss(const remat_nll_loss_t* a, const float* x, const int32_t* target, const float* weight, float* loss,
                    float* total) {
  float sum = 0.0f, count = 0.0f;
  for (int r = 0; r < a->rows; ++r) {
    const int ignored = target[r] == a->ignore;
    const float share = ignored ? 0.0f : weight ? weight[target[r]] : 1.0f;
    const float value = ignored ? 0.0f : -x[r * a->columns + target[r]] * share;
    if (a->reduction == 0) loss[r] = value;
    sum += value;
    count += share;
  }
  if (a->reduction != 0) *loss = a->reduction == 1 ? sum / count : sum;
  *total = count;
}

void remat_nll_loss_grad(const remat_nll_loss_t* a, const float* dloss, const int32_t* target, const float* weight,
                         const float* total, float* dx) {
  for (int r = 0; r < a->rows; ++r, dx += a->columns) {
    for (int i = 0; i < a->columns; ++i) dx[i] = 0.0f;
    if (target[r] == a->ignore) continue;
    const float share = weight ? weight[target[r]] : 1.0f;
    dx[target[r]] = a->reduction == 0   ? -dloss[r] * share
                    : a->reduction == 1 ? -*dloss * share / *total
                                        : -*dloss * share;
  }
}

static float square(float x, float target) { return (x - target) * (x - target); }
static float cross_entropy(float x, float target) {
  const float log_x = remat_log(x), log_rest = remat_log1p(-x);
  return -(target * (log_x < -100.0f ? -100.0f : log_x) + (1.0f - target) * (log_rest < -100.0f ? -100.0f : log_rest));
}
static float logits_cross_entropy(float x, float target) {
  return (1.0f - target) * x + remat_log1p(remat_exp(x < 0.0f ? x : -x)) + (x < 0.0f ? -x : 0.0f);
}

/* A sum with what it rounds off: losses are looked at, and may have many elements. */
typedef struct {
  float sum, lost;
} exact_t;
static void add(exact_t* to, float value) {
  const float term = value - to->lost, sum = to->sum + term;
  to->lost = (sum - to->sum) - term;
  to->sum = sum;
}

static void reduce(int reduction, int n, const exact_t* total, float* loss) {
  if (reduction != 0) *loss = reduction == 1 ? total->sum / (float)n : total->sum;
}

static void loss_of(const remat_loss_t* a, const float* x, const float* target, float* loss,
                    float (*element)(float, float)) {
  exact_t total = {0.0f, 0.0f};
  for (int i = 0; i < a->n; ++i) {
    const float value = element(x[i], target[i]);
    if (a->reduction == 0) loss[i] = value;
    add(&total, value);
  }
  reduce(a->reduction, a->n, &total, loss);
}

static float weight_of(const remat_loss_t* a, const float* dloss, int i) {
  return a->reduction == 0 ? dloss[i] : a->reduction == 1 ? *dloss / (float)a->n : *dloss;
}

void remat_mse_loss(const remat_loss_t* a, const float* x, const float* target, float* loss) {
  loss_of(a, x, target, loss, square);
}

void remat_mse_loss_grad(const remat_loss_t* a, const float* dloss, const float* x, const float* target, float* dx) {
  for (int i = 0; i < a->n; ++i) dx[i] = 2.0f * (x[i] - target[i]) * weight_of(a, dloss, i);
}

void remat_bce_loss(const remat_loss_t* a, const float* x, const float* target, float* loss) {
  loss_of(a, x, target, loss, cross_entropy);
}

void remat_bce_loss_grad(const remat_loss_t* a, const float* dloss, const float* x, const float* target, float* dx) {
  for (int i = 0; i < a->n; ++i) {
    const float spread = (1.0f - x[i]) * x[i];
    dx[i] = weight_of(a, dloss, i) * (x[i] - target[i]) / (spread > 1e-12f ? spread : 1e-12f);
  }
}

void remat_bce_logits_loss(const remat_loss_t* a, const float* x, const float* target, float* loss) {
  loss_of(a, x, target, loss, logits_cross_entropy);
}

/* The slope at a distance: it, cut at delta. */
static float cut(const remat_huber_loss_t* a, float far) {
  return far < -a->delta ? -a->delta : far > a->delta ? a->delta : far;
}

void remat_huber_loss(const remat_huber_loss_t* a, const float* x, const float* target, float* loss) {
  exact_t total = {0.0f, 0.0f};
  for (int i = 0; i < a->n; ++i) {
    const float far = x[i] - target[i], near = cut(a, far), value = near * (far - 0.5f * near) * a->scale;
    if (a->reduction == 0) loss[i] = value;
    add(&total, value);
  }
  reduce(a->reduction, a->n, &total, loss);
}

void remat_huber_loss_grad(const remat_huber_loss_t* a, const float* dloss, const float* x, const float* target,
                           float* dx) {
  const remat_loss_t loss = {a->n, a->reduction};
  for (int i = 0; i < a->n; ++i) dx[i] = cut(a, x[i] - target[i]) * a->scale * weight_of(&loss, dloss, i);
}
