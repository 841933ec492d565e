// Λ on one row, by a table: the product that rotates pairs, Type 1's cosines and sines, Type 3's permutation; and their gradients.
#pragma once
#include <initializer_list>

#include "rows.h"

namespace lrpe {

template <int N, int... I>
struct MakeLanes : MakeLanes<N - 1, N - 1, I...> {};
template <int... I>
struct MakeLanes<0, I...> {
    static vec swap(vec x) { return __builtin_shufflevector(x, x, (I ^ 1)...); }    // (im, re) of each pair
    static vec even(vec x) { return __builtin_shufflevector(x, x, (I & ~1)...); }   // (re, re)
    static vec odd(vec x) { return __builtin_shufflevector(x, x, (I | 1)...); }     // (im, im)
    static vec sign() { return vec{((I & 1) ? 1.0f : -1.0f)...}; }
};
using Pairs = MakeLanes<W>;

// The product of complex numbers stored as neighbouring pairs, and of the first with the second's conjugate.
inline vec times(vec x, vec u) { return x * Pairs::even(u) + Pairs::swap(x) * Pairs::odd(u) * Pairs::sign(); }
inline vec times_conjugate(vec x, vec u) {
    return x * Pairs::even(u) - Pairs::swap(x) * Pairs::odd(u) * Pairs::sign();
}

// Type 1's Λ: (y cos ‖ y sin) for a table of cosines, then sines.
inline void spread(const float* y, float* to, const float* table, int64_t d, int64_t width) {
    for (const float* half : {table, table + d}) {
        int64_t j = 0;
        for (; j + W <= d; j += W) store(to + j, load(y + j) * load(half + j));
        for (; j < d; j++) to[j] = y[j] * half[j];
        to += d, width -= d;
    }
    for (int64_t j = 0; j < width; j++) to[j] = 0;
}

// Its gradient dy = g cos + g' sin, in the memory of g. As cos² + sin² = 1, y = E cos + E' sin for the result E ‖ E'.
inline void unspread(float* g, const float* E, const float* table, float* dturn, int64_t d, int64_t padded_d) {
    const float *cos = table, *sin = table + d;
    int64_t j = 0;
    for (; j + W <= d; j += W) {
        vec re = load(g + j), im = load(g + d + j), c = load(cos + j), s = load(sin + j);
        if (dturn) {
            vec y = load(E + j) * c + load(E + d + j) * s;
            store(dturn + j, load(dturn + j) + re * y);
            store(dturn + d + j, load(dturn + d + j) + im * y);
        }
        store(g + j, re * c + im * s);
    }
    for (; j < d; j++) {
        float re = g[j], im = g[d + j];
        if (dturn) {
            float y = E[j] * cos[j] + E[d + j] * sin[j];
            dturn[j] += re * y, dturn[d + j] += im * y;
        }
        g[j] = re * cos[j] + im * sin[j];
    }
    for (; j < padded_d; j++) g[j] = 0;
}

// Type 3's Λ: y at the given places; and its transpose, in the memory of g.
inline void gather(const float* y, float* to, const int32_t* index, int64_t d, int64_t width) {
    for (int64_t j = 0; j < d; j++) to[j] = y[index[j]];
    for (int64_t j = d; j < width; j++) to[j] = 0;
}

inline void scatter(float* g, float* y, const int32_t* index, int64_t d) {
    for (int64_t j = 0; j < d; j++) y[index[j]] = g[j];
    copy_row(g, y, d);
}

}  // namespace lrpe
