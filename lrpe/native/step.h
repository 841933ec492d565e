// One token of every head, as lrpe/attention/engines/native.py passes it, field by field. Tensors are contiguous.
#pragma once
#include <cstdint>

extern "C" struct lrpe_step {
    int64_t batch, heads, key_heads;
    int64_t f, e, delta_width;  // widths of features, values and Δ's features
    int64_t phi, delta, divide, threads;
    double floor;  // is added to φ
    int64_t reflections, pairs;
    const float *q, *k, *v;          // (batch, heads, f), (batch, key heads, f), (batch, key heads, e)
    const float *delta_q, *delta_k;  // (batch, heads or key heads, delta width) if they are given, or null
    const float* V;                  // (reflections, f): P = H_1 ⋯ H_m for its rows
    const double* alpha;             // (1 or key heads, pairs)
    const float* log_alpha;          // each α is times e to this, or null
    int64_t alpha_head;              // strides from here on; a stride of 0 repeats
    const int64_t* position;         // (1 or batch), or null
    int64_t position_batch;
    const double* phase;  // takes the place of the position: (1 or batch, 1 or key heads, 1 or pairs), or null
    int64_t phase_batch, phase_head, phase_pair;
    const double* log_decay;  // (1 or batch, 1 or key heads), or null if it is 0
    int64_t decay_batch, decay_head;
    const uint8_t* mask;     // (batch), or null if every row has a token
    const float *S, *z;      // before the token: (batch, key heads, f, e) and (batch, key heads, delta width) or null
    float *S_next, *z_next;  // after it, in memory of their own
    float *out, *total;      // (batch, heads, e), divided by Δ if divide; Δ, (batch, heads), or null
};
