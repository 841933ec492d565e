// Vectors of floats as GCC and Clang know them, and the functions of a number that the kernels need.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lrpe {

#if defined(__AVX512F__)
constexpr int W = 16;  // floats per vector
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vec __attribute__((vector_size(4 * W), aligned(4), may_alias));  // aligned(4): loads may be unaligned
typedef int32_t ivec __attribute__((vector_size(4 * W), aligned(4), may_alias));

constexpr int64_t PAD = 16;  // widths of scratch rows are multiples of it, so that kernels have no remainders

inline int64_t padded(int64_t width) { return (width + PAD - 1) / PAD * PAD; }
inline vec load(const float* p) { return *reinterpret_cast<const vec*>(p); }
inline void store(float* p, vec x) { *reinterpret_cast<vec*>(p) = x; }
inline vec splat(float x) { return x - vec{}; }

// Comparisons with NaN are false, so that both keep a NaN of x.
#if defined(__AVX512F__)
inline vec at_least(vec x, float low) { return _mm512_max_ps(splat(low), x); }
inline vec at_most(vec x, float high) { return _mm512_min_ps(splat(high), x); }
#elif defined(__AVX2__)
inline vec at_least(vec x, float low) { return _mm256_max_ps(splat(low), x); }
inline vec at_most(vec x, float high) { return _mm256_min_ps(splat(high), x); }
#else
inline vec at_least(vec x, float low) { return x < splat(low) ? splat(low) : x; }
inline vec at_most(vec x, float high) { return x > splat(high) ? splat(high) : x; }
#endif

typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));

// The sum of all lanes, halves first: adding one lane after another would wait for each.
inline float sum(vec x) {
    vec4 parts[W / 4];
    std::memcpy(parts, &x, sizeof(x));
    for (int half = W / 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

// e^r to 3e-9 for |r| ≤ ln 2 / 2.
inline vec exp_near_0(vec r) {
    vec p = splat(1.3814540580e-3f);
    p = p * r + splat(8.3687454462e-3f);
    p = p * r + splat(4.1668388993e-2f);
    p = p * r + splat(1.6666521132e-1f);
    p = p * r + splat(4.9999994040e-1f);
    return (p * r + splat(1.0f)) * r + splat(1.0f);
}

// e^x to 1.2e-7: 2^n e^r with x = n ln 2 + r. Below the normal range it is 0, above the largest number infinity.
#if defined(__AVX512F__)
inline vec exp(vec x) {  // the instruction set rounds and scales by 2^n itself, also out of range
    x = at_most(at_least(x, -104.0f), 89.0f);
    vec n = _mm512_roundscale_ps(x * splat(1.44269504f), 0);
    return _mm512_scalef_ps(exp_near_0(x - n * splat(0.69314718f)), n);
}
#else
inline vec exp(vec x) {
    const vec whole = x, magic = splat(12582912.0f);  // 1.5 · 2^23: adding it rounds to a whole number
    x = at_most(at_least(x, -87.0f), 88.0f);
    vec shifted = x * splat(1.44269504f) + magic, n = shifted - magic;
    ivec bits = reinterpret_cast<ivec&>(shifted) - reinterpret_cast<const ivec&>(magic);
    ivec power = (bits + 127) << 23;
    vec y = exp_near_0(x - n * splat(0.69314718f)) * reinterpret_cast<vec&>(power);
    y = whole < splat(-87.0f) ? vec{} : y;
    return whole > splat(88.0f) ? splat(INFINITY) : y;
}
#endif

// Flush numbers below the normal range to 0 while this object lives: a decayed state is full of them, and each would
// cost a hundred cycles. The processor's flags are restored, so that the caller's arithmetic does not change.
class FlushDenormals {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();

public:
    FlushDenormals() { _mm_setcsr(before | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;

public:
    FlushDenormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" : : "r"(before | (1ull << 24)));
    }
    ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before)); }
#endif
};

}  // namespace lrpe
