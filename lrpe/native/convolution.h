// The short convolution that lrpe/attention/engines/library.py asks for, field by field.
#pragma once
#include <cstdint>

namespace lrpe {

// (batch, rows, channels) floats whose last stride is 1.
struct Rows {
    const float* p;
    int64_t batch, row;

    const float* at(int64_t b, int64_t t) const { return p + b * batch + t * row; }
};

}  // namespace lrpe

extern "C" struct lrpe_convolution {
    int64_t batch, n, channels, kernel, before, threads;
    lrpe::Rows x;       // n tokens
    lrpe::Rows window;  // the ``before`` tokens before them; a null pointer means zeros
    const float* w;     // (kernel, channels), contiguous
    float* y;           // (batch, n, channels), contiguous
    // The fields below are for backward only. All outputs are contiguous, and null if they are not wanted.
    lrpe::Rows g;         // the gradient of y
    float *dx, *dwindow;  // (batch, n, channels) and (batch, before, channels)
    float* dw;            // (pieces, kernel, channels), which are to be summed: one piece per ``piece`` tokens of a row
    int64_t piece;
};
