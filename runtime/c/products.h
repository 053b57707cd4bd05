/* What products and 1 x 1 convolutions share: a tile of at most 4 x 4 results. */
#ifndef REMAT_PRODUCTS_H
#define REMAT_PRODUCTS_H

#include "mathematics.h"
#include "remat_kernels.h"

/* Sums over `outer` times `k` products; the strides of the left operand are ao, am, ak, of the right one bo, bk, bn. */
typedef struct {
  int outer, k, ao, am, ak, bo, bk, bn;
} remat_product;
/* s[4 i + j] += sum of a[i][k] b[k][j], for i < m and j < n; both at most 4. */
void remat_tile(const remat_product* p, int m, int n, const float* a, const float* b, float s[16]);

#endif
