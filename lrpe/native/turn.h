// The rotations of Type 2 that lrpe/attention/engines/library.py asks for, field by field.
#pragma once
#include <cstdint>

extern "C" struct lrpe_turns {
    int64_t batch, heads, n, pairs, width, threads;  // width: of a row, at least 2 pairs, a multiple of PAD
    const double* phase;                             // p, (batch or 1, heads or 1, n, 1 or pairs)
    int64_t phase_batch, phase_head, phase_row, phase_pair;  // strides; a stride of 0 repeats
    const double* alpha;                                     // (1 or heads, pairs)
    int64_t alpha_head;
    float* to;  // (batch, heads, n, width), contiguous: cos and sin of p α by turns, then 1 and 0
};
