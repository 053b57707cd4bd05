/* Products of matrices, by which 1 x 1 convolutions are computed as well. */
#include "products.h"

/* Tiles of 4 x 4 results: eight loads for sixteen products. A sum has the same order as in the plain loop below. */
static void tile44(const remat_product* p, const float* a, const float* b, float s[16]) {
  float s00 = s[0], s01 = s[1], s02 = s[2], s03 = s[3], s10 = s[4], s11 = s[5], s12 = s[6], s13 = s[7];
  float s20 = s[8], s21 = s[9], s22 = s[10], s23 = s[11], s30 = s[12], s31 = s[13], s32 = s[14], s33 = s[15];
  for (int outer = 0; outer < p->outer; ++outer) {
    const float *a0 = a + outer * p->ao, *a1 = a0 + p->am, *a2 = a1 + p->am, *a3 = a2 + p->am;
    const float *b0 = b + outer * p->bo, *b1 = b0 + p->bn, *b2 = b1 + p->bn, *b3 = b2 + p->bn;
    const int ak = p->ak, bk = p->bk;
    for (int k = p->k; k > 0; --k) {
      const float x0 = *a0, x1 = *a1, x2 = *a2, x3 = *a3;
      a0 += ak, a1 += ak, a2 += ak, a3 += ak;
      const float y0 = *b0;
      b0 += bk;
      s00 += x0 * y0, s10 += x1 * y0, s20 += x2 * y0, s30 += x3 * y0;
      const float y1 = *b1;
      b1 += bk;
      s01 += x0 * y1, s11 += x1 * y1, s21 += x2 * y1, s31 += x3 * y1;
      const float y2 = *b2;
      b2 += bk;
      s02 += x0 * y2, s12 += x1 * y2, s22 += x2 * y2, s32 += x3 * y2;
      const float y3 = *b3;
      b3 += bk;
      s03 += x0 * y3, s13 += x1 * y3, s23 += x2 * y3, s33 += x3 * y3;
    }
  }
  s[0] = s00, s[1] = s01, s[2] = s02, s[3] = s03, s[4] = s10, s[5] = s11, s[6] = s12, s[7] = s13;
  s[8] = s20, s[9] = s21, s[10] = s22, s[11] = s23, s[12] = s30, s[13] = s31, s[14] = s32, s[15] = s33;
}

/* Four results beside each other, where a tile would stand out: next to the left, or to the right operand's side. */
static void row4(const remat_product* p, const float* a, const float* b, int next_a, int next_b, float s[4]) {
  float s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3];
  for (int outer = 0; outer < p->outer; ++outer) {
    const float* x = next_a ? b + outer * p->bo : a + outer * p->ao;
    const float* y0 = next_a ? a + outer * p->ao : b + outer * p->bo;
    const int next = next_a ? next_a : next_b, xk = next_a ? p->bk : p->ak, yk = next_a ? p->ak : p->bk;
    const float *y1 = y0 + next, *y2 = y1 + next, *y3 = y2 + next;
    for (int k = p->k; k > 0; --k) {
      const float v = *x;
      x += xk;
      s0 += v * *y0, s1 += v * *y1, s2 += v * *y2, s3 += v * *y3;
      y0 += yk, y1 += yk, y2 += yk, y3 += yk;
    }
  }
  s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3;
}

static float single(const remat_product* p, const float* a, const float* b, float sum) {
  for (int outer = 0; outer < p->outer; ++outer) {
    const float *x = a + outer * p->ao, *y = b + outer * p->bo;
    for (int k = p->k; k > 0; --k, x += p->ak, y += p->bk) sum += *x * *y;
  }
  return sum;
}

void remat_tile(const remat_product* p, int m, int n, const float* a, const float* b, float s[16]) {
  if (m == 4 && n == 4) {
    tile44(p, a, b, s);
  } else if (n == 4) {
    for (int i = 0; i < m; ++i) row4(p, a + i * p->am, b, 0, p->bn, s + 4 * i);
  } else if (m == 4) {
    for (int j = 0; j < n; ++j) {
      float column[4] = {s[j], s[4 + j], s[8 + j], s[12 + j]};
      row4(p, a, b + j * p->bn, p->am, 0, column);
      s[j] = column[0], s[4 + j] = column[1], s[8 + j] = column[2], s[12 + j] = column[3];
    }
  } else {
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) s[4 * i + j] = single(p, a + i * p->am, b + j * p->bn, s[4 * i + j]);
  }
}

/* A tile's results to y, whose rows have n elements. */
static void write_tile(const remat_matmul_t* a, int height, int width, const float s[16], float* y) {
  const float scale = a->scale;
  for (int i = 0; i < height; ++i, y += a->n, s += 4) {
    if (width == 4) {
      y[0] = s[0] * scale, y[1] = s[1] * scale, y[2] = s[2] * scale, y[3] = s[3] * scale;
    } else {
      for (int j = 0; j < width; ++j) y[j] = s[j] * scale;
    }
  }
}

static void write_positive(int height, int width, int n, uint32_t* mask, int at, float* y) {
  for (int i = 0; i < height; ++i, at += n)
    for (int j = 0; j < width; ++j) {
      const int on = remat_is_on(y[at + j]);
      if (mask) remat_set_bit(mask, at + j, on);
      if (!on) y[at + j] = 0.0f;
    }
}

void remat_matmul(const remat_matmul_t* a, const float* left, const float* right, const float* bias, float* y,
                  uint32_t* mask) {
  const remat_product p = {1, a->k, 0, a->am, a->ak, 0, a->bk, a->bn};
  for (int b = 0; b < a->b; ++b)
    for (int n = 0; n < a->n; n += 4) {
      const int width = a->n - n < 4 ? a->n - n : 4;
      float first[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (bias)
        for (int j = 0; j < width; ++j) first[j] = bias[n + j];
      for (int m = 0; m < a->m; m += 4) {
        const int height = a->m - m < 4 ? a->m - m : 4, at = (b * a->m + m) * a->n + n;
        float s[16];
        for (int i = 0; i < 16; i += 4) s[i] = first[0], s[i + 1] = first[1], s[i + 2] = first[2], s[i + 3] = first[3];
        remat_tile(&p, height, width, left + b * a->ab + m * a->am, right + b * a->bb + n * a->bn, s);
        write_tile(a, height, width, s, y + at);
        if (a->relu) write_positive(height, width, a->n, mask, at, y);
      }
    }
}

void remat_matmul_grad(const remat_matmul_t* a, const float* left, const float* right, const remat_sink* gradient) {
  /* The sum goes over all of b, as over one more dimension. */
  const remat_product p = {a->b, a->k, a->ab, a->am, a->ak, a->bb, a->bk, a->bn};
  for (int m = 0; m < a->m; m += 4)
    for (int n = 0; n < a->n; n += 4) {
      const int height = a->m - m < 4 ? a->m - m : 4, width = a->n - n < 4 ? a->n - n : 4;
      float s[16] = {0.0f};
      remat_tile(&p, height, width, left + m * a->am, right + n * a->bn, s);
      for (int i = 0; i < height; ++i)
        for (int j = 0; j < width; ++j) remat_put(gradient, (m + i) * a->n + n + j, s[4 * i + j] * a->scale);
    }
}

void remat_matmul_softmax_grad(const remat_matmul_t* a, const float* left, const float* right, const float* y,
                               float* dx, float* ws) {
  const remat_product p = {1, a->k, 0, a->am, a->ak, 0, a->bk, a->bn};
  for (int b = 0; b < a->b; ++b)
    for (int m = 0; m < a->m; m += 4) {
      const int height = a->m - m < 4 ? a->m - m : 4;
      for (int n = 0; n < a->n; n += 4) {
        const int width = a->n - n < 4 ? a->n - n : 4;
        float s[16] = {0.0f};
        remat_tile(&p, height, width, left + b * a->ab + m * a->am, right + b * a->bb + n * a->bn, s);
        write_tile(a, height, width, s, ws + n);
      }
      const remat_softmax_t softmax = {height, a->n};
      const int at = (b * a->m + m) * a->n;
      remat_softmax_grad(&softmax, ws, y + at, dx + at);
    }
}

void remat_matmul_unary_grad(const remat_matmul_unary_t* a, const float* left, const float* right, const float* x,
                             float* dx) {
  const remat_product p = {1, a->k, 0, a->am, a->ak, 0, a->bk, a->bn};
  remat_unary_t function = {4, a->function, a->p, a->q};
  for (int b = 0; b < a->b; ++b)
    for (int m = 0; m < a->m; m += 4)
      for (int n = 0; n < a->n; n += 4) {
        const int height = a->m - m < 4 ? a->m - m : 4;
        function.n = a->n - n < 4 ? a->n - n : 4;
        float s[16] = {0.0f};
        remat_tile(&p, height, function.n, left + b * a->ab + m * a->am, right + b * a->bb + n * a->bn, s);
        for (int i = 0; i < height; ++i) {
          const int at = (b * a->m + m + i) * a->n + n;
          for (int j = 0; j < function.n; ++j) s[4 * i + j] *= a->scale;
          remat_unary_grad(&function, s + 4 * i, x + at, dx + at);
        }
      }
}
