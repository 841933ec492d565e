// Y = X Wᵀ + b for a few rows X, as fast as W is read from memory.
#include "threads.h"

namespace lrpe {

constexpr int64_t BLOCK = 4;  // rows of X that stay in registers together

// One row of W with R rows of X. How a row of X is summed does not depend on R, so neither does the result.
template <int R>
inline void weigh(const float* w, const float* x, int64_t width, float bias, float* y, int64_t ldy) {
    vec even[R] = {}, odd[R] = {};
    int64_t j = 0;
    for (; j + 2 * W <= width; j += 2 * W)
        for (int r = 0; r < R; r++) {
            even[r] += load(w + j) * load(x + r * width + j);
            odd[r] += load(w + j + W) * load(x + r * width + j + W);
        }
    for (int r = 0; r < R; r++) {
        float rest = bias;
        for (int64_t i = j; i < width; i++) rest += w[i] * x[r * width + i];
        y[r * ldy] = sum(even[r] + odd[r]) + rest;
    }
}

inline void weigh_rows(const float* w, const float* x, int64_t rows, int64_t width, float bias, float* y, int64_t ldy) {
    for (; rows >= BLOCK; rows -= BLOCK, x += BLOCK * width, y += BLOCK * ldy) weigh<BLOCK>(w, x, width, bias, y, ldy);
    if (rows == 3) weigh<3>(w, x, width, bias, y, ldy);
    if (rows == 2) weigh<2>(w, x, width, bias, y, ldy);
    if (rows == 1) weigh<1>(w, x, width, bias, y, ldy);
}

}  // namespace lrpe

// x is (rows, width), w (outputs, width), b (outputs) or null, y (rows, outputs); all contiguous.
extern "C" __attribute__((visibility("default"))) int lrpe_product(const float* x, const float* w, const float* b, float* y,
                                                                  int64_t rows, int64_t width, int64_t outputs,
                                                                  int64_t threads) {
    constexpr int64_t PIECE = 64;       // rows of W that a thread takes at a time
    constexpr int64_t SHARE = 1 << 20;  // weights that are worth a thread: it takes as long to start one
    int64_t useful = 1 + outputs * width / SHARE;
    return lrpe::for_each_unit(
        (outputs + PIECE - 1) / PIECE, threads < useful ? threads : useful, [](int64_t) { return 0; },
        [=](int64_t piece, int) {
            for (int64_t i = piece * PIECE, last = std::min(outputs, i + PIECE); i < last; i++)
                lrpe::weigh_rows(w + i * width, x, rows, width, b ? b[i] : 0, y + i, outputs);
        });
}
