// One row while it is computed: N vectors in registers, or any number in memory.
#pragma once
#include "vectors.h"

namespace lrpe {

template <int N>
struct Row {
    vec lanes[N];
    Row(float*, int64_t) {}
    vec& operator[](int64_t j) { return lanes[j]; }

    // Call f(j) for every vector j; unrolled, so that the compiler can keep the vectors in registers.
    template <class F>
    __attribute__((always_inline)) void each(F f) const {
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) f(j);
    }
};

template <>
struct Row<0> {
    float* memory;
    int64_t width;
    Row(float* memory, int64_t width) : memory(memory), width(width) {}
    vec& operator[](int64_t j) { return *reinterpret_cast<vec*>(memory + j * W); }

    template <class F>
    __attribute__((always_inline)) void each(F f) const {
        for (int64_t j = 0; j * W < width; j++) f(j);
    }
};

// Call f with the number of vectors of a row as a constant, or 0 if no code was made for rows of this width.
template <class F>
inline void with_vectors(int64_t width, F f) {
    if (width == 2 * W) return f(std::integral_constant<int, 2>{});
    if (width == 4 * W) return f(std::integral_constant<int, 4>{});
    if (width == 8 * W) return f(std::integral_constant<int, 8>{});
    if (width == 16 * W && W < 16) return f(std::integral_constant<int, 16>{});
    return f(std::integral_constant<int, 0>{});
}

}  // namespace lrpe
