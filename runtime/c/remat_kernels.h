/* remat_kernels.h -- the kernels that an exported training step calls.
 *
 * C99 without allocation, libc or state of their own: all memory is the caller's. Every sum has one order, whatever the
 * blocking and whether a result lies over an input, so a call gives the same bits wherever floats are IEEE's: compile
 * with -ffp-contract=off, never with -ffast-math.
 *
 * A call has a structure of sizes, the buffers that it reads, those that it writes, and some take workspace (ws). A
 * pointer that may be absent is 0. Tensors are contiguous in the order of their sizes unless strides are given; sizes
 * and strides count elements. docs/export.md says which operators of PyTorch become which kernels. */
#ifndef REMAT_KERNELS_H
#define REMAT_KERNELS_H

#include <stdint.h>

#ifdef __FAST_MATH__
#error "remat's kernels need IEEE arithmetic; compile them without -ffast-math"
#endif

/* ---- What becomes of a parameter's gradient: it is stored, or used for an update as soon as an element is there. */

enum { REMAT_STORE, REMAT_SGD, REMAT_MOMENTUM, REMAT_ADAM };

/* One optimizer. PyTorch's, with its names; rate and what follows from the step's number change from step to step. */
typedef struct {
  int kind;
  float rate, decay;            /* the learning rate; weight decay, added to the gradient */
  float momentum;               /* REMAT_MOMENTUM */
  float rest1, rest2, epsilon;  /* REMAT_ADAM: 1 - beta1 and 1 - beta2, which have more digits than those */
  float step_size, second_root; /* rate / (1 - beta1^t), sqrt(1 - beta2^t) */
} remat_rule;

/* Where a gradient goes: a buffer (rule 0), or parameters with the optimizer's state beside them. */
typedef struct {
  float *to, *first, *second;
  const remat_rule* rule;
} remat_sink;

void remat_put(const remat_sink* sink, int index, float gradient);
/* Before step number t (from 1): the rule's step_size and second_root. */
void remat_begin_step(remat_rule* rule, uint32_t t);
/* A stored gradient of `rows` x `columns`, stored the other way round where `transposed`. */
typedef struct {
  int rows, columns, transposed;
} remat_update_t;
void remat_update(const remat_update_t* a, const float* gradient, const remat_sink* parameter);

/* ---- Products: y[b] = A[b] B[b] + bias, with strides of A[b][m][k] and B[b][k][n]. ---- */

typedef struct {
  int b, m, k, n, ab, am, ak, bb, bk, bn, relu;
  float scale;
} remat_matmul_t;
/* mask: with relu, a bit for each element of y, whether it is above 0. */
void remat_matmul(const remat_matmul_t* a, const float* left, const float* right, const float* bias, float* y,
                  uint32_t* mask);
void remat_matmul_grad(const remat_matmul_t* a, const float* left, const float* right, const remat_sink* gradient);

/* A product that is the gradient of a function's results, and with it that of the arguments: of softmax over rows of n
   (y: its results; ws: 4 n floats), of a function of single elements at x. The result may lie over y or x. */
void remat_matmul_softmax_grad(const remat_matmul_t* a, const float* left, const float* right, const float* y,
                               float* dx, float* ws);
typedef struct {
  int b, m, k, n, ab, am, ak, bb, bk, bn, function;
  float scale, p, q;
} remat_matmul_unary_t;
void remat_matmul_unary_grad(const remat_matmul_unary_t* a, const float* left, const float* right, const float* x,
                             float* dx);

/* ---- Convolutions of x[n][c][h][w] with w[o][c / g][kh][kw]. ---- */

typedef struct {
  int n, c, h, w, o, kh, kw, sh, sw, ph, pw, dh, dw, g, oh, ow, relu;
} remat_conv2d_t;
/* Stride 1 with 1 x 1 kernels, or with one channel in each group and results of the input's size: y may be x, given ws.
   ws: remat_conv2d_workspace() floats, in the gradients too. */
void remat_conv2d(const remat_conv2d_t* a, const float* x, const float* w, const float* bias, float* y, uint32_t* mask,
                  float* ws);
void remat_conv2d_grad_input(const remat_conv2d_t* a, const float* dy, const float* w, float* dx, float* ws);
/* 1 x 1 kernels: a stored gradient is transposed, [c][o], and may lie over x where h * w >= o. */
void remat_conv2d_grad_weight(const remat_conv2d_t* a, const float* x, const float* dy, const remat_sink* gradient,
                              float* ws);

/* ---- Element by element. ---- */

enum {
  REMAT_SCALE,
  REMAT_SHIFT,
  REMAT_HARDTANH,
  REMAT_GELU_TANH,
  REMAT_GELU_ERF,
  REMAT_SILU,
  REMAT_SIGMOID,
  REMAT_TANH,
  REMAT_HARDSWISH,
  REMAT_HARDSIGMOID,
  REMAT_LEAKY_RELU,
  REMAT_ELU,
  REMAT_EXP,
  REMAT_LOG,
  REMAT_SQRT,
  REMAT_RSQRT,
  REMAT_RECIPROCAL,
  REMAT_ABS,
  REMAT_SIGN,
  REMAT_SQUARE,
  REMAT_SOFTPLUS,
  REMAT_POWER,     /* p: whole, or whole and a half */
  REMAT_CLAMP,     /* p and q, with a gradient there too */
  REMAT_CLAMP_MIN, /* p alone */
  REMAT_CLAMP_MAX  /* q alone */
};
typedef struct {
  int n, function;
  float p, q;
} remat_unary_t;
void remat_unary(const remat_unary_t* a, const float* x, float* y);
/* x: the function's argument, but its result for sigmoid and tanh, as PyTorch saves it. */
void remat_unary_grad(const remat_unary_t* a, const float* dy, const float* x, float* dx);

/* Comparisons give 1 or 0. */
enum { REMAT_ADD, REMAT_SUB, REMAT_MUL, REMAT_DIV, REMAT_EQUAL, REMAT_GREATER, REMAT_NOT_LESS };
/* y is contiguous, of sizes d; x0 and x1 have strides. */
typedef struct {
  int function, d[4], s0[4], s1[4];
  float scale;
} remat_binary_t;
void remat_binary(const remat_binary_t* a, const float* x0, const float* x1, float* y);

/* y = condition != 0 ? x0 : x1. */
typedef struct {
  int d[4], sc[4], s0[4], s1[4];
} remat_where_t;
void remat_where(const remat_where_t* a, const float* condition, const float* x0, const float* x1, float* y);

typedef struct {
  int n;
} remat_relu_t;
void remat_relu(const remat_relu_t* a, const float* x, float* y, uint32_t* mask);
void remat_relu_grad(const remat_relu_t* a, const float* dy, const float* y, float* dx);
void remat_relu_grad_mask(const remat_relu_t* a, const float* dy, const uint32_t* mask, float* dx);

/* Keeps an element with probability `keep` / 2^32, times `scale`; which ones, counter[0] (the seed), counter[1] (the
   step's number) and `site` say. Its own gradient. */
typedef struct {
  int n;
  uint32_t keep, site;
  float scale;
} remat_dropout_t;
void remat_dropout(const remat_dropout_t* a, const float* x, const uint32_t* counter, float* y);

/* ---- Copies. ---- */

typedef struct {
  int d[6], s[6];
} remat_copy_t;
void remat_copy(const remat_copy_t* a, const float* x, float* y); /* from strides, which may be negative */
typedef struct {
  int d[4], x[4], low[4];
} remat_pad_t;
void remat_pad(const remat_pad_t* a, const float* x, float* y); /* x[4] within zeros of sizes d */
typedef struct {
  int outer, width, inner, at;
} remat_cat_t;
void remat_cat(const remat_cat_t* a, const float* x, float* y); /* one part of it */
typedef struct {
  int n;
  float value;
} remat_fill_t;
void remat_fill(const remat_fill_t* a, float* y);
typedef struct {
  int n;
} remat_convert_t;
void remat_to_float(const remat_convert_t* a, const int32_t* x, float* y);
void remat_to_int(const remat_convert_t* a, const float* x, int32_t* y); /* of whole numbers */

/* ---- Sums: over the middle one of three sizes, and over the two others. ---- */

typedef struct {
  int outer, middle, inner;
  float scale;
} remat_sum_t;
void remat_sum(const remat_sum_t* a, const float* x, float* y);
void remat_sum_around(const remat_sum_t* a, const float* x, float* y);
void remat_sum_around_grad(const remat_sum_t* a, const float* x, const remat_sink* gradient);

/* ---- Pooling. An index is a place in the window, row by row. ---- */

typedef struct {
  int planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw, count_pad;
} remat_pool2d_t;
void remat_max_pool2d(const remat_pool2d_t* a, const float* x, float* y, uint8_t* index);
void remat_max_pool2d_grad(const remat_pool2d_t* a, const float* dy, const uint8_t* index, float* dx);
void remat_avg_pool2d(const remat_pool2d_t* a, const float* x, float* y);
void remat_avg_pool2d_grad(const remat_pool2d_t* a, const float* dy, float* dx);

/* ---- Normalization: each of `rows` rows has `channels` channels of `inner` elements; row r has the parameters of
   channels r % groups * channels and on. Layers: groups 1, inner 1. ---- */

typedef struct {
  int rows, groups, channels, inner;
  float eps;
} remat_norm_t;
void remat_norm(const remat_norm_t* a, const float* x, const float* weight, const float* bias, float* y, float* mean,
                float* rstd);
void remat_norm_grad_input(const remat_norm_t* a, const float* dy, const float* x, const float* mean, const float* rstd,
                           const float* weight, float* dx);
void remat_norm_grad_weight(const remat_norm_t* a, const float* dy, const float* x, const float* mean,
                            const float* rstd, const remat_sink* gradient);

typedef struct {
  int n, channels, inner, train;
  float eps;
} remat_batch_norm_t;
/* train: mean and var (the biased one) are results; otherwise they are read. */
void remat_batch_norm(const remat_batch_norm_t* a, const float* x, const float* weight, const float* bias, float* y,
                      float* mean, float* var);
void remat_batch_norm_eval(const remat_batch_norm_t* a, const float* x, const float* weight, const float* bias,
                           const float* mean, const float* var, float* y);
void remat_batch_norm_grad_input(const remat_batch_norm_t* a, const float* dy, const float* x, const float* mean,
                                 const float* var, const float* weight, float* dx);
void remat_batch_norm_grad_weight(const remat_batch_norm_t* a, const float* dy, const float* x, const float* mean,
                                  const float* var, const remat_sink* gradient);
typedef struct {
  int channels;
  float momentum, unbiased;
} remat_running_t;
void remat_running(const remat_running_t* a, const float* mean, const float* var, float* running_mean,
                   float* running_var);

/* ---- Embeddings, softmax, losses. reduction: 0 none, 1 mean, 2 sum. ---- */

typedef struct {
  int n, rows, columns, padding;
} remat_embedding_t;
void remat_embedding(const remat_embedding_t* a, const float* table, const int32_t* index, float* y);
void remat_embedding_grad(const remat_embedding_t* a, const float* dy, const int32_t* index,
                          const remat_sink* gradient);

typedef struct {
  int rows, columns;
} remat_softmax_t;
void remat_softmax(const remat_softmax_t* a, const float* x, float* y);
void remat_softmax_grad(const remat_softmax_t* a, const float* dy, const float* y, float* dx);
void remat_log_softmax(const remat_softmax_t* a, const float* x, float* y);
void remat_log_softmax_grad(const remat_softmax_t* a, const float* dy, const float* y, float* dx);

typedef struct {
  int rows, columns, reduction, ignore;
} remat_nll_loss_t;
/* weight: of each class, or 0. total: of the weights of the targets. */
void remat_nll_loss(const remat_nll_loss_t* a, const float* x, const int32_t* target, const float* weight, float* loss,
                    float* total);
void remat_nll_loss_grad(const remat_nll_loss_t* a, const float* dloss, const int32_t* target, const float* weight,
                         const float* total, float* dx);
typedef struct {
  int n, reduction;
} remat_loss_t;
void remat_mse_loss(const remat_loss_t* a, const float* x, const float* target, float* loss);
void remat_mse_loss_grad(const remat_loss_t* a, const float* dloss, const float* x, const float* target, float* dx);
void remat_bce_loss(const remat_loss_t* a, const float* x, const float* target, float* loss);
void remat_bce_loss_grad(const remat_loss_t* a, const float* dloss, const float* x, const float* target, float* dx);
void remat_bce_logits_loss(const remat_loss_t* a, const float* x, const float* target, float* loss);
/* Squares up to `delta`, lines beyond it; all of it times `scale`. */
typedef struct {
  int n, reduction;
  float delta, scale;
} remat_huber_loss_t;
void remat_huber_loss(const remat_huber_loss_t* a, const float* x, const float* target, float* loss);
void remat_huber_loss_grad(const remat_huber_loss_t* a, const float* dloss, const float* x, const float* target,
                           float* dx);

#endif
