/* Convolutions with one channel in each group: a plane is copied to the workspace with zeros around it, so that no sum
 * has to look for the edges, and results are computed in columns of four. */
#include "convolutions.h"
#include "mathematics.h"

int remat_is_depthwise(const remat_conv2d_t* a) {
  return a->g == a->c && a->o == a->c && a->g > 1 && a->sh == 1 && a->sw == 1 && a->dh == 1 && a->dw == 1 &&
         a->ph < a->kh && a->pw < a->kw;
}

/* h x w within zeros: `top` rows above, `left` columns before. */
static void copy_plane(const float* x, int h, int w, int top, int left, int rows, int columns, float* to) {
  for (int i = 0; i < rows * columns; ++i) to[i] = 0.0f;
  for (int i = 0; i < h; ++i)
    for (int j = 0; j < w; ++j) to[(i + top) * columns + left + j] = x[i * w + j];
}

/* Four results below each other (or fewer): sums over the kernel's rows, each from its first place on; with `step` -1
   from its last one back. */
static inline void column4(int count, int kh, int kw, const float* x, int columns, const float* w, int step,
                           float s[4]) {
  if (count == 4) {
    float s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3];
    for (int k = 0; k < kh; ++k, x += columns) {
      const float *x0 = x, *x1 = x + columns, *x2 = x1 + columns, *x3 = x2 + columns;
      for (int l = kw; l > 0; --l, w += step) {
        const float v = *w;
        s0 += v * *x0++, s1 += v * *x1++, s2 += v * *x2++, s3 += v * *x3++;
      }
    }
    s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3;
    return;
  }
  for (int r = 0; r < count; ++r) {
    const float* v = w;
    float sum = s[r];
    for (int k = 0; k < kh; ++k)
      for (int l = 0; l < kw; ++l, v += step) sum += *v * x[(r + k) * columns + l];
    s[r] = sum;
  }
}

void remat_depthwise(const remat_conv2d_t* a, const float* x, const float* w, float bias, int at, float* y,
                     uint32_t* mask, float* ws) {
  const int columns = a->w + 2 * a->pw;
  copy_plane(x, a->h, a->w, a->ph, a->pw, a->h + 2 * a->ph, columns, ws);
  for (int i = 0; i < a->oh; i += 4)
    for (int j = 0; j < a->ow; ++j) {
      const int count = a->oh - i < 4 ? a->oh - i : 4;
      float s[4] = {bias, bias, bias, bias};
      column4(count, a->kh, a->kw, ws + i * columns + j, columns, w, 1, s);
      for (int r = 0; r < count; ++r) {
        const int place = at + (i + r) * a->ow + j, on = remat_is_on(s[r]);
        if (mask) remat_set_bit(mask, place, on);
        y[place] = a->relu && !on ? 0.0f : s[r];
      }
    }
}

void remat_depthwise_grad_input(const remat_conv2d_t* a, const float* dy, const float* w, float* dx, float* ws) {
  const int top = a->kh - 1 - a->ph, left = a->kw - 1 - a->pw, columns = a->w + a->kw - 1;
  copy_plane(dy, a->oh, a->ow, top, left, a->h + a->kh - 1, columns, ws);
  for (int i = 0; i < a->h; i += 4)
    for (int j = 0; j < a->w; ++j) {
      const int count = a->h - i < 4 ? a->h - i : 4;
      float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      column4(count, a->kh, a->kw, ws + i * columns + j, columns, w + a->kh * a->kw - 1, -1, s);
      for (int r = 0; r < count; ++r) dx[(i + r) * a->w + j] = s[r];
    }
}

/* Up to three places of a kernel's row at a time. */
void remat_depthwise_grad_weight(const remat_conv2d_t* a, const float* x, const float* dy, const remat_sink* gradient,
                                 float* ws) {
  const int columns = a->w + 2 * a->pw, rows = a->h + 2 * a->ph;
  for (int c = 0; c < a->c; ++c)
    for (int k = 0; k < a->kh; ++k)
      for (int l = 0; l < a->kw; l += 3) {
        const int count = a->kw - l < 3 ? a->kw - l : 3;
        float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f;
        for (int n = 0; n < a->n; ++n) {
          const int plane = n * a->c + c;
          /* One copy serves the whole channel where there is one image. */
          if (a->n > 1 || (k == 0 && l == 0))
            copy_plane(x + plane * a->h * a->w, a->h, a->w, a->ph, a->pw, rows, columns, ws);
          const float* d = dy + plane * a->oh * a->ow;
          for (int i = 0; i < a->oh; ++i) {
            const float* row = ws + (i + k) * columns + l;
            if (count == 3) {
              for (int j = a->ow; j > 0; --j, ++row) {
                const float v = *d++;
                s0 += v * row[0], s1 += v * row[1], s2 += v * row[2];
              }
            } else {
              for (int j = 0; j < a->ow; ++j) {
                const float v = *d++;
                s0 += v * row[j];
                if (count > 1) s1 += v * row[j + 1];
              }
            }
          }
        }
        const int at = (c * a->kh + k) * a->kw + l;
        remat_put(gradient, at, s0);
        if (count > 1) remat_put(gradient, at + 1, s1);
        if (count > 2) remat_put(gradient, at + 2, s2);
      }
}
