/* Functions of single elements, forward and backward. Any result may lie over an input of its size. */
#include "mathematics.h"
#include "remat_kernels.h"

#define ROOT_2_OVER_PI 0.797884561f
#define ROOT_HALF 0.707106781f
#define INVERSE_ROOT_2_PI 0.398942280f

static float gelu_argument(float x) { return ROOT_2_OVER_PI * (x + 0.044715f * x * x * x); }
static float clamp(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
/* From p on, or up to q, or both. */
static float between(const remat_unary_t* a, float x) {
  if (a->function != REMAT_CLAMP_MAX && x < a->p) x = a->p;
  return a->function != REMAT_CLAMP_MIN && x > a->q ? a->q : x;
}
static float softplus(float x, float beta, float threshold) {
  const float scaled = x * beta;
  return scaled > threshold ? x : remat_log1p(remat_exp(scaled)) / beta;
}
static float power(float x, float exponent) {
  const int halves = (int)(2.0f * exponent), size = halves < 0 ? -halves : halves;
  if (size & 1 && (x < -3.40282347e38f || x == 0.0f)) x = x < 0.0f ? -x : 0.0f; /* as pow() has it */
  if (halves < 0) x = 1.0f / x;
  float result = size & 1 ? remat_sqrt(x) : 1.0f;
  for (int i = size >> 1; i > 0; i >>= 1, x *= x)
    if (i & 1) result *= x;
  return result;
}

#define EACH(expression)        \
  for (int i = 0; i < n; ++i) { \
    const float v = x[i];       \
    y[i] = (expression);        \
  }                             \
  break

/* Those that steps have less of share a loop, and a look at the function for each element. */
static float seldom(const remat_unary_t* a, float v) {
  switch (a->function) {
    case REMAT_HARDSIGMOID:
      return clamp(v + 3.0f, 0.0f, 6.0f) / 6.0f;
    case REMAT_EXP:
      return remat_exp(v);
    case REMAT_LOG:
      return remat_log(v);
    case REMAT_SQRT:
      return remat_sqrt(v);
    case REMAT_RSQRT:
      return 1.0f / remat_sqrt(v);
    case REMAT_RECIPROCAL:
      return 1.0f / v;
    case REMAT_ABS:
      return v < 0.0f ? -v : v;
    case REMAT_SIGN:
      return v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : 0.0f;
    case REMAT_SQUARE:
      return v * v;
    case REMAT_POWER:
      return power(v, a->p);
    case REMAT_SOFTPLUS:
      return softplus(v, a->p, a->q);
    case REMAT_ELU:
      return v > 0.0f ? v : a->p * remat_expm1(v);
    default:
      return between(a, v);
  }
}

void remat_unary(const remat_unary_t* a, const float* x, float* y) {
  const int n = a->n;
  const float p = a->p, q = a->q;
  switch (a->function) {
    case REMAT_SCALE:
      EACH(v * p);
    case REMAT_SHIFT:
      EACH(v + p);
    case REMAT_HARDTANH:
      EACH(clamp(v, p, q));
    case REMAT_GELU_TANH:
      EACH(0.5f * v * (1.0f + remat_tanh(gelu_argument(v))));
    case REMAT_GELU_ERF:
      EACH(0.5f * v * (1.0f + remat_erf(v * ROOT_HALF)));
    case REMAT_SILU:
      EACH(v / (1.0f + remat_exp(-v)));
    case REMAT_SIGMOID:
      EACH(remat_sigmoid(v));
    case REMAT_TANH:
      EACH(remat_tanh(v));
    case REMAT_HARDSWISH:
      EACH(v * clamp(v + 3.0f, 0.0f, 6.0f) / 6.0f);
    case REMAT_LEAKY_RELU:
      EACH(v > 0.0f ? v : v * p);
    default:
      EACH(seldom(a, v));
  }
}

static float gelu_tanh_slope(float x) {
  const float t = remat_tanh(gelu_argument(x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * ROOT_2_OVER_PI * (1.0f + 0.134145f * x * x);
}
static float gelu_erf_slope(float x) {
  return 0.5f * (1.0f + remat_erf(x * ROOT_HALF)) + x * (INVERSE_ROOT_2_PI * remat_exp(-0.5f * x * x));
}
static float silu_slope(float x) {
  const float s = remat_sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
static float hardswish_slope(float x) { return x <= -3.0f ? 0.0f : x < 3.0f ? x / 3.0f + 0.5f : 1.0f; }

static float softplus_slope(float scaled, float threshold) {
  if (scaled > threshold) return 1.0f;
  const float e = remat_exp(scaled);
  return e / (e + 1.0f);
}

static float seldom_slope(const remat_unary_t* a, float v) {
  switch (a->function) {
    case REMAT_SILU:
      return silu_slope(v);
    case REMAT_SOFTPLUS:
      return softplus_slope(v * a->p, a->q);
    case REMAT_ELU:
      return v <= 0.0f ? a->p * remat_exp(v) : 1.0f;
    default: /* hardsigmoid */
      return v > -3.0f && v < 3.0f ? 1.0f / 6.0f : 0.0f;
  }
}

#define EACH_SLOPE(expression)    \
  for (int i = 0; i < n; ++i) {   \
    const float v = x[i];         \
    dx[i] = dy[i] * (expression); \
  }                               \
  break

void remat_unary_grad(const remat_unary_t* a, const float* dy, const float* x, float* dx) {
  const int n = a->n;
  const float p = a->p, q = a->q;
  switch (a->function) {
    case REMAT_HARDTANH:
      EACH_SLOPE(v <= p || v >= q ? 0.0f : 1.0f);
    case REMAT_CLAMP:
    case REMAT_CLAMP_MIN:
    case REMAT_CLAMP_MAX:
      for (int i = 0; i < n; ++i) dx[i] = between(a, x[i]) == x[i] ? dy[i] : 0.0f;
      break;
    case REMAT_GELU_TANH:
      EACH_SLOPE(gelu_tanh_slope(v));
    case REMAT_GELU_ERF:
      EACH_SLOPE(gelu_erf_slope(v));
    case REMAT_SIGMOID:
      EACH_SLOPE(v * (1.0f - v));
    case REMAT_TANH:
      EACH_SLOPE(1.0f - v * v);
    case REMAT_HARDSWISH:
      EACH_SLOPE(hardswish_slope(v));
    case REMAT_LEAKY_RELU:
      EACH_SLOPE(v > 0.0f ? 1.0f : p);
    default:
      EACH_SLOPE(seldom_slope(a, v));
  }
}

/* Where a row begins. */
static int row(const int s[4], int i, int j, int k) { return i * s[0] + j * s[1] + k * s[2]; }

static float combine(int function, float u, float v) {
  if (function == REMAT_DIV) return u / v;
  return (function == REMAT_EQUAL ? u == v : function == REMAT_GREATER ? u > v : u >= v) ? 1.0f : 0.0f;
}

void remat_binary(const remat_binary_t* a, const float* x0, const float* x1, float* y) {
  const int inner = a->d[3], step0 = a->s0[3], step1 = a->s1[3];
  const float scale = a->function == REMAT_SUB ? -a->scale : a->scale;
  for (int i = 0; i < a->d[0]; ++i)
    for (int j = 0; j < a->d[1]; ++j)
      for (int k = 0; k < a->d[2]; ++k, y += inner) {
        const float *u = x0 + row(a->s0, i, j, k), *v = x1 + row(a->s1, i, j, k);
        switch (a->function) {
          case REMAT_ADD:
          case REMAT_SUB:
            for (int l = 0; l < inner; ++l, u += step0, v += step1) y[l] = *u + scale * *v;
            break;
          case REMAT_MUL:
            for (int l = 0; l < inner; ++l, u += step0, v += step1) y[l] = *u * *v;
            break;
          default:
            for (int l = 0; l < inner; ++l, u += step0, v += step1) y[l] = combine(a->function, *u, *v);
        }
      }
}

void remat_where(const remat_where_t* a, const float* condition, const float* x0, const float* x1, float* y) {
  for (int i = 0; i < a->d[0]; ++i)
    for (int j = 0; j < a->d[1]; ++j)
      for (int k = 0; k < a->d[2]; ++k) {
        const float *c = condition + row(a->sc, i, j, k), *u = x0 + row(a->s0, i, j, k), *v = x1 + row(a->s1, i, j, k);
        for (int l = 0; l < a->d[3]; ++l, c += a->sc[3], u += a->s0[3], v += a->s1[3]) *y++ = *c != 0.0f ? *u : *v;
      }
}

void remat_relu(const remat_relu_t* a, const float* x, float* y, uint32_t* mask) {
  for (int i = 0; i < a->n; ++i) {
    const int on = remat_is_on(x[i]);
    if (mask) remat_set_bit(mask, i, on);
    y[i] = on ? x[i] : 0.0f;
  }
}

void remat_relu_grad(const remat_relu_t* a, const float* dy, const float* y, float* dx) {
  for (int i = 0; i < a->n; ++i) dx[i] = remat_is_on(y[i]) ? dy[i] : 0.0f;
}

void remat_relu_grad_mask(const remat_relu_t* a, const float* dy, const uint32_t* mask, float* dx) {
  for (int i = 0; i < a->n; i += 32) {
    uint32_t bits = mask[i >> 5];
    const int end = a->n - i < 32 ? a->n : i + 32;
    for (int j = i; j < end; ++j, bits >>= 1) dx[j] = bits & 1 ? dy[j] : 0.0f;
  }
}

/* A generator without a state: the bits of a place are a function of the seed, the step, the site and the place, mixed
   as in splitmix and murmur (multiply by odd numbers, fold the upper half down). */
static uint32_t mix(uint32_t v) {
  v = (v ^ (v >> 16)) * 0x7feb352du;
  v = (v ^ (v >> 15)) * 0x846ca68bu;
  return v ^ (v >> 16);
}

void remat_dropout(const remat_dropout_t* a, const float* x, const uint32_t* counter, float* y) {
  const uint32_t key = mix(counter[0] ^ mix(counter[1] + mix(a->site + 0x9e3779b9u)));
  for (int i = 0; i < a->n; ++i) y[i] = mix(key + (uint32_t)i * 0x9e3779b9u) < a->keep ? x[i] * a->scale : 0.0f;
}
