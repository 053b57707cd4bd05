#include "mathematics.h"

#define INFINITE remat_float(0x7f800000u)
#define NOT_A_NUMBER remat_float(0x7fc00000u)

/* e^x = 2^k e^r with |r| <= ln(2) / 2, and e^r by its series. ln 2 in two parts, so that r is exact to the last bit.
   Adding 1.5 * 2^23 rounds to a whole number, which is then in the lowest bits. */
static inline float series(float r) { /* e^r - 1 */
  float tail = r * 1.98412698e-4f + 1.38888889e-3f;
  tail = tail * r + 8.33333333e-3f;
  tail = tail * r + 4.16666667e-2f;
  tail = tail * r + 1.66666667e-1f;
  tail = tail * r + 0.5f;
  return tail * (r * r) + r;
}

float remat_exp(float x) {
  uint32_t more = 0;
  float rest = 1.0f;
  if (!(x > -87.3f && x < 88.0f)) {
    if (!(x < 88.8f)) return x + INFINITE; /* NaN stays */
    if (x < -104.0f) return 0.0f;
    /* 2^k may be no normal number: 2^(k + 24) or 2^(k - 24) is, and the product rounds. */
    more = x < 0.0f ? 24u : -24u;
    rest = x < 0.0f ? 5.96046448e-8f : 16777216.0f;
  }
  const float shifted = x * 1.44269504f + 12582912.0f, k = shifted - 12582912.0f;
  const float power = series((x - k * 0.693145752f) - k * 1.42860677e-6f) + 1.0f;
  return remat_float(remat_bits(power) + ((remat_bits(shifted) - 0x4b400000u + more) << 23)) * rest;
}

float remat_expm1(float x) { return x > -0.346f && x < 0.346f ? series(x) : remat_exp(x) - 1.0f; }

/* ln x = e ln 2 + 2 artanh((m - 1) / (m + 1)) with m between sqrt(1/2) and sqrt(2). */
float remat_log(float x) {
  uint32_t bits = remat_bits(x);
  int exponent = -127;
  if (bits - 0x00800000u >= 0x7f000000u) { /* no positive normal number */
    if (x == 0.0f) return -INFINITE;
    if (!(x > 0.0f)) return NOT_A_NUMBER;
    if (x == INFINITE) return x;
    bits = remat_bits(x * 16777216.0f);
    exponent -= 24;
  }
  exponent += (int)(bits >> 23);
  float m = remat_float((bits & 0x007fffffu) | 0x3f800000u);
  if (m > 1.41421356f) {
    m *= 0.5f;
    exponent += 1;
  }
  const float f = m - 1.0f, s = f / (2.0f + f), z = s * s;
  float tail = z * 0.111111111f + 0.142857143f;
  tail = tail * z + 0.2f;
  tail = tail * z + 0.333333333f;
  /* 2 s = f - s f, which keeps the bits of f. */
  const float small = s * (2.0f * z * tail - f);
  return (float)exponent * 0.693145752f + (f + (small + (float)exponent * 1.42860677e-6f));
}

/* Of 1 + x that is rounded, with what that rounds off. */
float remat_log1p(float x) {
  const float sum = 1.0f + x, lost = x - (sum - 1.0f);
  return lost != 0.0f && x < INFINITE ? remat_log(sum) + lost / sum : remat_log(sum);
}

float remat_tanh(float x) {
  const float size = x < 0.0f ? -x : x;
  if (size < 0.3f) {
    const float z = x * x;
    float tail = z * -8.86323553e-3f + 2.18694885e-2f;
    tail = tail * z - 5.39682540e-2f;
    tail = tail * z + 1.33333333e-1f;
    tail = tail * z - 3.33333333e-1f;
    return x + x * (z * tail);
  }
  const float result = size > 9.1f ? 1.0f : 1.0f - 2.0f / (remat_exp(2.0f * size) + 1.0f);
  return x < 0.0f ? -result : result;
}

/* Near 0 its series; beyond, 1 - e^(-x^2) times a polynomial in 1 / (1 + x / 2), fitted to erfc. */
float remat_erf(float x) {
  const float size = x < 0.0f ? -x : x;
  if (size < 1.0f) {
    const float z = x * x;
    float tail = -9.670153218e-06f;
    tail = tail * z + 1.126354312e-04f;
    tail = tail * z - 8.483177122e-04f;
    tail = tail * z + 5.220921562e-03f;
    tail = tail * z - 2.686536907e-02f;
    tail = tail * z + 1.128378087e-01f;
    tail = tail * z - 3.761263829e-01f;
    tail = tail * z + 1.128379167e+00f;
    return x * tail;
  }
  float result = 1.0f;
  if (size < 4.0f) {
    const float t = 1.0f / (1.0f + 0.5f * size);
    float tail = 1.201530651e-01f;
    tail = tail * t - 4.741271885e-01f;
    tail = tail * t + 5.677767876e-01f;
    tail = tail * t - 1.074186179e-01f;
    tail = tail * t + 3.497061173e-01f;
    tail = tail * t + 2.591243853e-01f;
    tail = tail * t + 2.850038927e-01f;
    tail = tail * t - 1.604505903e-04f;
    result = 1.0f - remat_exp(-size * size) * tail;
  }
  return x < 0.0f ? -result : result;
}

float remat_sqrt(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? x : NOT_A_NUMBER;
#if defined(__ARM_FP) && (__ARM_FP & 4) && !defined(__aarch64__)
  float root;
  __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x));
  return root;
#elif defined(__x86_64__) || defined(__aarch64__)
  return __builtin_sqrtf(x);
#else
  if (x == INFINITE) return x;
  /* Bit by bit, with two more than a float has to round by. */
  uint32_t bits = remat_bits(x);
  int exponent = (int)(bits >> 23) - 127;
  if (exponent == -127) { /* below the smallest normal number */
    bits = remat_bits(x * 16777216.0f);
    exponent = (int)(bits >> 23) - 151;
  }
  uint64_t left = (uint64_t)((bits & 0x007fffffu) | 0x00800000u) << ((exponent & 1) ? 28 : 27);
  uint64_t root = 0, bit = (uint64_t)1 << 52;
  while (bit > left) bit >>= 2;
  for (; bit != 0; bit >>= 2) {
    if (left >= root + bit) {
      left -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  const int half = (exponent - (exponent & 1)) / 2;
  uint32_t rounded = (uint32_t)(root >> 2);
  if ((root & 2) && ((root & 1) || left || (rounded & 1))) rounded += 1;
  return remat_float(((uint32_t)(half + 127) << 23) + (rounded - 0x00800000u));
#endif
}
