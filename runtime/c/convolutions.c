/* Convolutions in general, and those of 1 x 1; those with one channel in each group are in depthwise.c. */
#include "convolutions.h"

#include "products.h"

static int is_1x1(const remat_conv2d_t* a) {
  return a->kh == 1 && a->kw == 1 && a->sh == 1 && a->sw == 1 && a->ph == 0 && a->pw == 0 && a->g == 1;
}

/* Which places k of a kernel meet an element of the image: first <= k < last, of those i0 + k * dilation. */
static void meets(int size, int i0, int kernel, int dilation, int* first, int* last) {
  int low = 0, high = kernel;
  while (low < high && i0 + low * dilation < 0) ++low;
  while (high > low && i0 + (high - 1) * dilation >= size) --high;
  *first = low;
  *last = high;
}

/* s[r] += sum of x[i * sx] * w[i * sw + r * next], for r < count <= 4. */
static inline void dots(int n, int count, const float* x, int sx, const float* w, int sw, int next, float s[4]) {
  if (count == 4) {
    float s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3];
    const float *w1 = w + next, *w2 = w1 + next, *w3 = w2 + next;
    for (; n > 0; --n, x += sx, w += sw, w1 += sw, w2 += sw, w3 += sw) {
      const float v = *x;
      s0 += v * *w, s1 += v * *w1, s2 += v * *w2, s3 += v * *w3;
    }
    s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3;
    return;
  }
  for (int r = 0; r < count; ++r, w += next) {
    float sum = s[r];
    for (int i = 0; i < n; ++i) sum += x[i * sx] * w[i * sw];
    s[r] = sum;
  }
}

static void finish(const remat_conv2d_t* a, float value, int at, float* y, uint32_t* mask) {
  const int on = remat_is_on(value);
  if (mask) remat_set_bit(mask, at, on);
  y[at] = a->relu && !on ? 0.0f : value;
}

/* Pixels in fours. Where y is x, the pixels' channels are copied to ws first. */
static void forward_1x1(const remat_conv2d_t* a, const float* x, const float* w, const float* bias, float* y,
                        uint32_t* mask, float* ws) {
  const int hw = a->h * a->w;
  const int over = y == x;
  const remat_product p = {1, a->c, 0, a->c, 1, 0, over ? 4 : hw, 1};
  for (int n = 0; n < a->n; ++n)
    for (int q = 0; q < hw; q += 4) {
      const int width = hw - q < 4 ? hw - q : 4;
      const float* pixels = x + n * a->c * hw + q;
      if (over) {
        for (int c = 0; c < a->c; ++c)
          for (int i = 0; i < width; ++i) ws[4 * c + i] = pixels[c * hw + i];
        pixels = ws;
      }
      for (int o = 0; o < a->o; o += 4) {
        const int height = a->o - o < 4 ? a->o - o : 4;
        float s[16];
        for (int i = 0; i < 16; ++i) s[i] = bias && (i >> 2) < height ? bias[o + (i >> 2)] : 0.0f;
        remat_tile(&p, height, width, w + o * a->c, pixels, s);
        for (int i = 0; i < height; ++i)
          for (int j = 0; j < width; ++j) finish(a, s[4 * i + j], (n * a->o + o + i) * hw + q + j, y, mask);
      }
    }
}

static void grad_input_1x1(const remat_conv2d_t* a, const float* dy, const float* w, float* dx, float* ws) {
  const int hw = a->h * a->w;
  const int over = dx == dy;
  const remat_product p = {1, a->o, 0, 1, a->c, 0, over ? 4 : hw, 1};
  for (int n = 0; n < a->n; ++n)
    for (int q = 0; q < hw; q += 4) {
      const int width = hw - q < 4 ? hw - q : 4;
      const float* pixels = dy + n * a->o * hw + q;
      if (over) {
        for (int o = 0; o < a->o; ++o)
          for (int i = 0; i < width; ++i) ws[4 * o + i] = pixels[o * hw + i];
        pixels = ws;
      }
      for (int c = 0; c < a->c; c += 4) {
        const int height = a->c - c < 4 ? a->c - c : 4;
        float s[16] = {0.0f};
        remat_tile(&p, height, width, w + c, pixels, s);
        for (int i = 0; i < height; ++i)
          for (int j = 0; j < width; ++j) dx[(n * a->c + c + i) * hw + q + j] = s[4 * i + j];
      }
    }
}

/* Channels of x in fours, so that what is done with can be overwritten: column c of the gradient has o elements, and
   the channels up to c of x have more. */
static void grad_weight_1x1(const remat_conv2d_t* a, const float* x, const float* dy, const remat_sink* gradient,
                            float* ws) {
  const int hw = a->h * a->w;
  const remat_product p = {a->n, hw, a->o * hw, hw, 1, a->c * hw, 1, hw};
  for (int c = 0; c < a->c; c += 4) {
    const int width = a->c - c < 4 ? a->c - c : 4;
    for (int o = 0; o < a->o; o += 4) {
      const int height = a->o - o < 4 ? a->o - o : 4;
      float s[16] = {0.0f};
      remat_tile(&p, height, width, dy + o * hw, x + c * hw, s);
      for (int i = 0; i < height; ++i)
        for (int j = 0; j < width; ++j) {
          if (gradient->rule) {
            remat_put(gradient, (o + i) * a->c + c + j, s[4 * i + j]);
          } else {
            ws[j * a->o + o + i] = s[4 * i + j];
          }
        }
    }
    if (!gradient->rule)
      for (int i = 0; i < width * a->o; ++i) gradient->to[c * a->o + i] = ws[i];
  }
}

void remat_conv2d(const remat_conv2d_t* a, const float* x, const float* w, const float* bias, float* y, uint32_t* mask,
                  float* ws) {
  if (is_1x1(a)) {
    forward_1x1(a, x, w, bias, y, mask, ws);
    return;
  }
  if (remat_is_depthwise(a)) {
    for (int plane = 0; plane < a->n * a->c; ++plane)
      remat_depthwise(a, x + plane * a->h * a->w, w + plane % a->c * a->kh * a->kw, bias ? bias[plane % a->c] : 0.0f,
                      plane * a->oh * a->ow, y, mask, ws);
    return;
  }
  const int cg = a->c / a->g, og = a->o / a->g, kernel = a->kh * a->kw, ohw = a->oh * a->ow;
  for (int n = 0; n < a->n; ++n)
    for (int o = 0; o < a->o;) {
      const int left_in_group = og - o % og, count = left_in_group < 4 ? left_in_group : 4;
      const float *image = x + (n * a->c + o / og * cg) * a->h * a->w, *wo = w + o * cg * kernel;
      for (int i = 0; i < a->oh; ++i)
        for (int j = 0; j < a->ow; ++j) {
          const int i0 = i * a->sh - a->ph, j0 = j * a->sw - a->pw;
          int k0, k1, l0, l1;
          meets(a->h, i0, a->kh, a->dh, &k0, &k1);
          meets(a->w, j0, a->kw, a->dw, &l0, &l1);
          float s[4];
          for (int r = 0; r < 4; ++r) s[r] = bias && r < count ? bias[o + r] : 0.0f;
          for (int c = 0; c < cg; ++c)
            for (int k = k0; k < k1; ++k)
              dots(l1 - l0, count, image + (c * a->h + i0 + k * a->dh) * a->w + j0 + l0 * a->dw, a->dw,
                   wo + (c * a->kh + k) * a->kw + l0, 1, cg * kernel, s);
          for (int r = 0; r < count; ++r) finish(a, s[r], (n * a->o + o + r) * ohw + i * a->ow + j, y, mask);
        }
      o += count;
    }
}

/* By element of dx: which results it took part in. Those are at i = (row + ph - k * dh) / sh. */
void remat_conv2d_grad_input(const remat_conv2d_t* a, const float* dy, const float* w, float* dx, float* ws) {
  if (is_1x1(a)) {
    grad_input_1x1(a, dy, w, dx, ws);
    return;
  }
  if (remat_is_depthwise(a)) {
    for (int plane = 0; plane < a->n * a->c; ++plane)
      remat_depthwise_grad_input(a, dy + plane * a->oh * a->ow, w + plane % a->c * a->kh * a->kw,
                                 dx + plane * a->h * a->w, ws);
    return;
  }
  const int cg = a->c / a->g, og = a->o / a->g, kernel = a->kh * a->kw;
  for (int n = 0; n < a->n; ++n)
    for (int c = 0; c < a->c;) {
      const int left_in_group = cg - c % cg, count = left_in_group < 4 ? left_in_group : 4;
      const int group = c / cg;
      for (int row = 0; row < a->h; ++row)
        for (int column = 0; column < a->w; ++column) {
          float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          for (int o = group * og; o < (group + 1) * og; ++o) {
            const float *d = dy + (n * a->o + o) * a->oh * a->ow, *wo = w + (o * cg + c % cg) * kernel;
            for (int k = 0; k < a->kh; ++k) {
              const int i = row + a->ph - k * a->dh;
              if (i < 0 || i % a->sh || i / a->sh >= a->oh) continue;
              for (int l = 0; l < a->kw; ++l) {
                const int j = column + a->pw - l * a->dw;
                if (j < 0 || j % a->sw || j / a->sw >= a->ow) continue;
                dots(1, count, d + i / a->sh * a->ow + j / a->sw, 1, wo + k * a->kw + l, 1, kernel, s);
              }
            }
          }
          for (int r = 0; r < count; ++r) dx[((n * a->c + c + r) * a->h + row) * a->w + column] = s[r];
        }
      c += count;
    }
}

void remat_conv2d_grad_weight(const remat_conv2d_t* a, const float* x, const float* dy, const remat_sink* gradient,
                              float* ws) {
  if (is_1x1(a)) {
    grad_weight_1x1(a, x, dy, gradient, ws);
    return;
  }
  if (remat_is_depthwise(a)) {
    remat_depthwise_grad_weight(a, x, dy, gradient, ws);
    return;
  }
  const int cg = a->c / a->g, og = a->o / a->g, kernel = a->kh * a->kw, ohw = a->oh * a->ow;
  for (int o = 0; o < a->o;) {
    const int left_in_group = og - o % og, count = left_in_group < 4 ? left_in_group : 4;
    for (int c = 0; c < cg; ++c)
      for (int k = 0; k < a->kh; ++k)
        for (int l = 0; l < a->kw; ++l) {
          /* results j whose place l meets the image */
          int j0 = 0, j1 = a->ow;
          while (j0 < j1 && j0 * a->sw - a->pw + l * a->dw < 0) ++j0;
          while (j1 > j0 && (j1 - 1) * a->sw - a->pw + l * a->dw >= a->w) --j1;
          float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          for (int n = 0; n < a->n; ++n)
            for (int i = 0; i < a->oh; ++i) {
              const int row = i * a->sh - a->ph + k * a->dh;
              if (row < 0 || row >= a->h) continue;
              const float* image = x + ((n * a->c + o / og * cg + c) * a->h + row) * a->w;
              dots(j1 - j0, count, image + j0 * a->sw - a->pw + l * a->dw, a->sw,
                   dy + ((n * a->o + o) * a->oh + i) * a->ow + j0, 1, ohw, s);
            }
          for (int r = 0; r < count; ++r)
            remat_put(gradient, (o + r) * cg * kernel + (c * a->kh + k) * a->kw + l, s[r]);
        }
    o += count;
  }
}
