/* From a gradient to a parameter: optimizers as PyTorch has them. */
#include "mathematics.h"
#include "remat_kernels.h"

void remat_put(const remat_sink* sink, int index, float gradient) {
  const remat_rule* rule = sink->rule;
  float* to = sink->to + index;
  if (!rule) {
    *to = gradient;
    return;
  }
  if (rule->decay != 0.0f) gradient += rule->decay * *to;
  if (rule->kind == REMAT_SGD) {
    *to -= rule->rate * gradient;
  } else if (rule->kind == REMAT_MOMENTUM) {
    float* velocity = sink->first + index;
    *velocity = rule->momentum * *velocity + gradient;
    *to -= rule->rate * *velocity;
  } else {
    float *first = sink->first + index, *second = sink->second + index;
    *first += rule->rest1 * (gradient - *first);
    *second = (1.0f - rule->rest2) * *second + rule->rest2 * gradient * gradient;
    *to -= rule->step_size * (*first / (remat_sqrt(*second) / rule->second_root + rule->epsilon));
  }
}

/* 1 - (1 - rest)^exponent: by squares, as 1 - (1 - a)(1 - b) = a + b - a b. */
static float rest_of_power(float rest, uint32_t exponent) {
  float result = 0.0f;
  for (; exponent != 0; exponent >>= 1, rest = 2.0f * rest - rest * rest)
    if (exponent & 1) result = result + rest - result * rest;
  return result;
}

void remat_begin_step(remat_rule* rule, uint32_t t) {
  if (rule->kind != REMAT_ADAM) return;
  rule->step_size = rule->rate / rest_of_power(rule->rest1, t);
  rule->second_root = remat_sqrt(rest_of_power(rule->rest2, t));
}

void remat_update(const remat_update_t* a, const float* gradient, const remat_sink* parameter) {
  for (int i = 0; i < a->rows; ++i)
    for (int j = 0; j < a->columns; ++j)
      remat_put(parameter, i * a->columns + j, gradient[a->transposed ? j * a->rows + i : i * a->columns + j]);
}
