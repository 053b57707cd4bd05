/* Copies of views, and sums. */
#include "remat_kernels.h"

void remat_copy(const remat_copy_t* a, const float* x, float* y) {
  const int *d = a->d, *s = a->s;
  for (int i = 0; i < d[0]; ++i)
    for (int j = 0; j < d[1]; ++j)
      for (int k = 0; k < d[2]; ++k)
        for (int l = 0; l < d[3]; ++l)
          for (int m = 0; m < d[4]; ++m) {
            const float* from = x + i * s[0] + j * s[1] + k * s[2] + l * s[3] + m * s[4];
            for (int n = 0; n < d[5]; ++n, from += s[5]) *y++ = *from;
          }
}

void remat_pad(const remat_pad_t* a, const float* x, float* y) {
  const int* d = a->d;
  for (int i = 0; i < d[0] * d[1] * d[2] * d[3]; ++i) y[i] = 0.0f;
  for (int i = 0; i < a->x[0]; ++i)
    for (int j = 0; j < a->x[1]; ++j)
      for (int k = 0; k < a->x[2]; ++k) {
        float* row = y + (((i + a->low[0]) * d[1] + j + a->low[1]) * d[2] + k + a->low[2]) * d[3] + a->low[3];
        for (int l = 0; l < a->x[3]; ++l) row[l] = *x++;
      }
}

void remat_cat(const remat_cat_t* a, const float* x, float* y) {
  for (int i = 0; i < a->outer; ++i)
    for (int j = 0; j < a->inner; ++j) y[i * a->width + a->at + j] = *x++;
}

void remat_fill(const remat_fill_t* a, float* y) {
  for (int i = 0; i < a->n; ++i) y[i] = a->value;
}

void remat_to_float(const remat_convert_t* a, const int32_t* x, float* y) {
  for (int i = 0; i < a->n; ++i) y[i] = (float)x[i];
}

void remat_to_int(const remat_convert_t* a, const float* x, int32_t* y) {
  for (int i = 0; i < a->n; ++i) y[i] = (int32_t)x[i];
}

void remat_sum(const remat_sum_t* a, const float* x, float* y) {
  for (int i = 0; i < a->outer; ++i)
    for (int j = 0; j < a->inner; ++j) {
      const float* from = x + i * a->middle * a->inner + j;
      float sum = 0.0f;
      for (int k = 0; k < a->middle; ++k, from += a->inner) sum += *from;
      y[i * a->inner + j] = sum * a->scale;
    }
}

static float around(const remat_sum_t* a, const float* x, int k) {
  float sum = 0.0f;
  for (int i = 0; i < a->outer; ++i) {
    const float* from = x + (i * a->middle + k) * a->inner;
    for (int j = 0; j < a->inner; ++j) sum += from[j];
  }
  return sum * a->scale;
}

void remat_sum_around(const remat_sum_t* a, const float* x, float* y) {
  for (int k = 0; k < a->middle; ++k) y[k] = around(a, x, k);
}

void remat_sum_around_grad(const remat_sum_t* a, const float* x, const remat_sink* gradient) {
  for (int k = 0; k < a->middle; ++k) remat_put(gradient, k, around(a, x, k));
}
