/* Convolutions with one channel in each group. */
#ifndef REMAT_CONVOLUTIONS_H
#define REMAT_CONVOLUTIONS_H

#include "remat_kernels.h"

/* Stride and dilation 1, each channel by itself. Others go the general way. */
int remat_is_depthwise(const remat_conv2d_t* a);
/* One plane, from x + bias to y[at] and on. ws: (h + 2 ph) * (w + 2 pw) floats. */
void remat_depthwise(const remat_conv2d_t* a, const float* x, const float* w, float bias, int at, float* y,
                     uint32_t* mask, float* ws);
void remat_depthwise_grad_input(const remat_conv2d_t* a, const float* dy, const float* w, float* dx, float* ws);
void remat_depthwise_grad_weight(const remat_conv2d_t* a, const float* x, const float* dy, const remat_sink* gradient,
                                 float* ws);

#endif
