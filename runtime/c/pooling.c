/* Pooling over windows; padding counts as -infinity (max), or as 0 that is counted or not (avg). */
#include "remat_kernels.h"

/* The part of a window that is within the plane. */
typedef struct {
  int i0, j0, k0, k1, l0, l1;
} window_t;

static window_t window(const remat_pool2d_t* a, int i, int j) {
  window_t w = {i * a->sh - a->ph, j * a->sw - a->pw, 0, a->kh, 0, a->kw};
  if (w.i0 < 0) w.k0 = -w.i0;
  if (w.j0 < 0) w.l0 = -w.j0;
  if (w.i0 + w.k1 > a->h) w.k1 = a->h - w.i0;
  if (w.j0 + w.l1 > a->w) w.l1 = a->w - w.j0;
  return w;
}

void remat_max_pool2d(const remat_pool2d_t* a, const float* x, float* y, uint8_t* index) {
  for (int plane = 0; plane < a->planes; ++plane, x += a->h * a->w)
    for (int i = 0; i < a->oh; ++i)
      for (int j = 0; j < a->ow; ++j) {
        const window_t w = window(a, i, j);
        int best = w.k0 * a->kw + w.l0;
        float most = x[(w.i0 + w.k0) * a->w + w.j0 + w.l0];
        for (int k = w.k0; k < w.k1; ++k)
          for (int l = w.l0; l < w.l1; ++l) {
            const float v = x[(w.i0 + k) * a->w + w.j0 + l];
            if (v > most || v != v) { /* NaN is the largest */
              most = v;
              best = k * a->kw + l;
            }
          }
        *y++ = most;
        if (index) *index++ = (uint8_t)best;
      }
}

void remat_max_pool2d_grad(const remat_pool2d_t* a, const float* dy, const uint8_t* index, float* dx) {
  for (int plane = 0; plane < a->planes; ++plane, dx += a->h * a->w) {
    for (int i = 0; i < a->h * a->w; ++i) dx[i] = 0.0f;
    for (int i = 0; i < a->oh; ++i)
      for (int j = 0; j < a->ow; ++j, ++index) {
        const int row = i * a->sh - a->ph + *index / a->kw, column = j * a->sw - a->pw + *index % a->kw;
        dx[row * a->w + column] += *dy++;
      }
  }
}

/* With padding that counts, a window may reach over its end no further than PyTorch's (ceil_mode is refused). */
static float share(const remat_pool2d_t* a, const window_t* w) {
  return (float)(a->count_pad ? a->kh * a->kw : (w->k1 - w->k0) * (w->l1 - w->l0));
}

void remat_avg_pool2d(const remat_pool2d_t* a, const float* x, float* y) {
  for (int plane = 0; plane < a->planes; ++plane, x += a->h * a->w)
    for (int i = 0; i < a->oh; ++i)
      for (int j = 0; j < a->ow; ++j) {
        const window_t w = window(a, i, j);
        float sum = 0.0f;
        for (int k = w.k0; k < w.k1; ++k)
          for (int l = w.l0; l < w.l1; ++l) sum += x[(w.i0 + k) * a->w + w.j0 + l];
        *y++ = sum / share(a, &w);
      }
}

void remat_avg_pool2d_grad(const remat_pool2d_t* a, const float* dy, float* dx) {
  for (int plane = 0; plane < a->planes; ++plane, dx += a->h * a->w) {
    for (int i = 0; i < a->h * a->w; ++i) dx[i] = 0.0f;
    for (int i = 0; i < a->oh; ++i)
      for (int j = 0; j < a->ow; ++j) {
        const window_t w = window(a, i, j);
        const float v = *dy++ / share(a, &w);
        for (int k = w.k0; k < w.k1; ++k)
          for (int l = w.l0; l < w.l1; ++l) dx[(w.i0 + k) * a->w + w.j0 + l] += v;
      }
  }
}
