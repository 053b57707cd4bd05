/* Functions of one float, without libc: the same bits on every processor with IEEE arithmetic. */
#ifndef REMAT_MATHEMATICS_H
#define REMAT_MATHEMATICS_H

#include <stdint.h>

float remat_exp(float x); /* 0 below -87.3, at most that of 88.7 */
float remat_log(float x); /* of positive x; -100 of others, which is where PyTorch's losses cut */
float remat_tanh(float x);
float remat_erf(float x);
float remat_sqrt(float x); /* rounded correctly; 0 of negative x */

static inline uint32_t remat_bits(float x) {
  union {
    float f;
    uint32_t u;
  } both;
  both.f = x;
  return both.u;
}
static inline float remat_float(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } both;
  both.u = bits;
  return both.f;
}
static inline float remat_sigmoid(float x) { return 1.0f / (1.0f + remat_exp(-x)); }

static inline void remat_set_bit(uint32_t* mask, int index, int on) {
  const uint32_t bit = (uint32_t)1 << (index & 31);
  mask[index >> 5] = on ? mask[index >> 5] | bit : mask[index >> 5] & ~bit;
}

#endif
