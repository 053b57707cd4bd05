/* Functions of one float, without libc: the same bits on every processor with IEEE arithmetic. */
#ifndef REMAT_MATHEMATICS_H
#define REMAT_MATHEMATICS_H

#include <stdint.h>

float remat_exp(float x);
float remat_expm1(float x); /* e^x - 1 and ln(1 + x), whose digits near 0 the sum would lose */
float remat_log(float x);
float remat_log1p(float x);
float remat_tanh(float x);
float remat_erf(float x);
float remat_sqrt(float x); /* rounded correctly */

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

/* Whether relu lets x through: NaN too, so that it is seen. */
static inline int remat_is_on(float x) { return !(x <= 0.0f); }
static inline void remat_set_bit(uint32_t* mask, int index, int on) {
  const uint32_t bit = (uint32_t)1 << (index & 31);
  mask[index >> 5] = on ? mask[index >> 5] | bit : mask[index >> 5] & ~bit;
}

#endif
