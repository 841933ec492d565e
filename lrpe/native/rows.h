// Rows of a chunk: read from a tensor into padded scratch memory, and written or added back.
#pragma once
#include "products.h"

namespace lrpe {

constexpr int64_t C = 32;  // tokens per chunk: its tensors fit the first-level cache

// A row is too short for a call of memcpy to pay off.
inline void copy_row(float* to, const float* from, int64_t width) {
    int64_t j = 0;
    for (; j + W <= width; j += W) store(to + j, load(from + j));
    for (; j < width; j++) to[j] = from[j];
}

// Ask for a row of the chunk that follows, so that it arrives from memory while this chunk is computed. Addresses past the
// ends are harmless.
template <int writes>
inline void prefetch_row(const float* row, int64_t width) {
    for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(row + j, writes);
}

// Copy m rows of the given width into C rows of width ld; the rest is 0. The next chunk begins `ahead` rows further.
inline void read_rows(float* to, int64_t ld, const float* from, int64_t stride, int64_t m, int64_t width,
                      int64_t ahead = C) {
    for (int64_t i = 0; i < m; i++) {
        prefetch_row<0>(from + (i + ahead) * stride, width);
        copy_row(to + i * ld, from + i * stride, width);
        for (int64_t j = width; j < ld; j++) to[i * ld + j] = 0;
    }
    if (m < C) std::memset(to + m * ld, 0, (C - m) * ld * sizeof(float));
}

inline void write_rows(const float* from, int64_t ld, float* to, int64_t stride, int64_t m, int64_t width,
                       int64_t ahead = C) {
    for (int64_t i = 0; i < m; i++) {
        prefetch_row<1>(to + (i + ahead) * stride, width);
        copy_row(to + i * stride, from + i * ld, width);
    }
}

inline void add_rows(const float* from, int64_t ld, float* to, int64_t stride, int64_t m, int64_t width) {
    for (int64_t i = 0; i < m; i++) {
        float* row = to + i * stride;
        int64_t j = 0;
        for (; j + W <= width; j += W) store(row + j, load(row + j) + load(from + i * ld + j));
        for (; j < width; j++) row[j] += from[i * ld + j];
    }
}

// S += Aᵀ B over the chunks of a text, in blocks that are summed by themselves first: added to one by one, a sum over a long
// text would lose digits.
struct BlockSum {
    static constexpr int64_t BLOCK = 32;  // chunks
    float *S = nullptr, *part = nullptr;
    int64_t F = 0, E = 0, added = 0;

    void start() {
        std::memset(S, 0, F * E * sizeof(float));
        added = 0;
    }

    void add(const float* A, const float* B) {
        multiply({A, 1, F}, B, E, part, E, F, E, C, added == 0 ? nothing : everything);
        if (++added == BLOCK) finish();
    }

    void finish() {
        if (added) add_scaled(S, 1, part, F * E);
        added = 0;
    }
};

}  // namespace lrpe
