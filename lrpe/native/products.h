// Products of small matrices in cache. B and C have rows whose width is a multiple of PAD; A has any strides, so that a
// transposed A costs nothing.
#pragma once
#include "vectors.h"

namespace lrpe {

// Which part of a product is computed. A lower triangular A has no later columns; its transpose has no earlier ones.
enum class Part { all, lower_result, lower_a, upper_a };

struct Strided {
    const float* p;
    int64_t row, column;
};

// The factor of each row of C before a product is added to it; 0 ignores what the row holds, even NaN.
struct Keep {
    const float* p;
    int64_t row;  // 0 for one factor of all rows
};
constexpr float ZERO = 0, ONE = 1;
constexpr Keep nothing = {&ZERO, 0}, everything = {&ONE, 0};

// C[R rows, V vectors] = keep · C + A B over k0 ≤ k < k1. The accumulators stay in registers.
template <int R, int V>
inline void tile(Strided a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t k0, int64_t k1, Keep keep) {
    vec sums[R][V];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) {
        float factor = keep.p[i * keep.row];
#pragma GCC unroll 8
        for (int j = 0; j < V; j++) sums[i][j] = factor == 0 ? vec{} : load(c + i * ldc + j * W) * splat(factor);
    }
    for (int64_t k = k0; k < k1; k++) {
        vec row[V];
#pragma GCC unroll 8
        for (int j = 0; j < V; j++) row[j] = load(b + k * ldb + j * W);
#pragma GCC unroll 8
        for (int i = 0; i < R; i++) {
            vec x = splat(a.p[i * a.row + k * a.column]);
#pragma GCC unroll 8
            for (int j = 0; j < V; j++) sums[i][j] += x * row[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 8
        for (int j = 0; j < V; j++) store(c + i * ldc + j * W, sums[i][j]);
}

template <int R>
inline void tile_row(Strided a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t N, int64_t k0, int64_t k1,
                     Keep keep) {
    int64_t j = 0;
#if defined(__AVX512F__) || defined(__aarch64__)  // 32 registers
    for (; j + 4 * W <= N; j += 4 * W) tile<R, 4>(a, b + j, ldb, c + j, ldc, k0, k1, keep);
#endif
    for (; j + 2 * W <= N; j += 2 * W) tile<R, 2>(a, b + j, ldb, c + j, ldc, k0, k1, keep);
    for (; j + W <= N; j += W) tile<R, 1>(a, b + j, ldb, c + j, ldc, k0, k1, keep);
}

// C (M × N) = keep · C + A (M × K) B (K × N); M is a multiple of 4, of PAD for a lower triangular result.
template <Part part = Part::all>
inline void multiply(Strided a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t M, int64_t N, int64_t K,
                     Keep keep) {
    for (int64_t i = 0; i < M;) {
        int64_t left = part == Part::lower_result ? PAD - i % PAD : M - i, rows = left == 4 || left == 8 ? 4 : 6;
        int64_t k0 = part == Part::upper_a ? i : 0;
        int64_t k1 = part == Part::lower_a ? (i + rows < K ? i + rows : K) : K;
        int64_t width = part == Part::lower_result ? padded(i + rows) : N;
        Strided rest = {a.p + i * a.row, a.row, a.column};
        Keep of_rest = {keep.p + i * keep.row, keep.row};
        if (rows == 6)
            tile_row<6>(rest, b, ldb, c + i * ldc, ldc, width, k0, k1, of_rest);
        else
            tile_row<4>(rest, b, ldb, c + i * ldc, ldc, width, k0, k1, of_rest);
        i += rows;
    }
}

// B (columns × rows) = Aᵀ for A (rows × columns); both sizes are multiples of 4.
inline void transpose(const float* a, int64_t lda, float* b, int64_t ldb, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i += 4)
        for (int64_t j = 0; j < columns; j += 4) {
            const float* p = a + i * lda + j;
            vec4 r0 = *(const vec4*)p, r1 = *(const vec4*)(p + lda), r2 = *(const vec4*)(p + 2 * lda),
                 r3 = *(const vec4*)(p + 3 * lda);
            vec4 s0 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), s1 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
            vec4 t0 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), t1 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
            float* q = b + j * ldb + i;
            *(vec4*)q = __builtin_shufflevector(s0, t0, 0, 1, 4, 5);
            *(vec4*)(q + ldb) = __builtin_shufflevector(s0, t0, 2, 3, 6, 7);
            *(vec4*)(q + 2 * ldb) = __builtin_shufflevector(s1, t1, 0, 1, 4, 5);
            *(vec4*)(q + 3 * ldb) = __builtin_shufflevector(s1, t1, 2, 3, 6, 7);
        }
}

inline float dot(const float* x, const float* y, int64_t width) {
    vec total{};
    for (int64_t j = 0; j < width; j += W) total += load(x + j) * load(y + j);
    return sum(total);
}

// y += a x
inline void add_scaled(float* y, float a, const float* x, int64_t width) {
    for (int64_t j = 0; j < width; j += W) store(y + j, load(y + j) + splat(a) * load(x + j));
}

// Row i of Y = row i of X times a[i]; a weight of 0 gives 0 even for NaN, so that nothing leaks out of a forgotten sequence.
inline void scale_rows(float* y, const float* x, int64_t ld, const float* a, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < ld; j += W) store(y + i * ld + j, a[i] == 0 ? vec{} : load(x + i * ld + j) * splat(a[i]));
}

// Rows of X with weight 0 become 0: the other factor's are 0 too, but 0 · NaN would leak out of a forgotten sequence.
inline void forget_rows(float* x, int64_t ld, const float* a, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        if (a[i] == 0) std::memset(x + i * ld, 0, ld * sizeof(float));
}

}  // namespace lrpe
