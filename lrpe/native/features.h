// The features of a chunk: φ(x), its reflection x - 2 (x Vᵀ) U, its rotation; and their gradients.
#pragma once
#include "problem.h"
#include "products.h"
#include "threads.h"

namespace lrpe {

constexpr int64_t C = 32;  // tokens per chunk: its tensors fit the first-level cache

// A row is too short for a call of memcpy to pay off.
inline void copy_row(float* to, const float* from, int64_t width) {
    int64_t j = 0;
    for (; j + W <= width; j += W) store(to + j, load(from + j));
    for (; j < width; j++) to[j] = from[j];
}

// Copy m rows of the given width into C rows of width ld; the rest is 0.
inline void read_rows(float* to, int64_t ld, const float* from, int64_t stride, int64_t m, int64_t width) {
    for (int64_t i = 0; i < m; i++) {
        copy_row(to + i * ld, from + i * stride, width);
        for (int64_t j = width; j < ld; j++) to[i * ld + j] = 0;
    }
    if (m < C) std::memset(to + m * ld, 0, (C - m) * ld * sizeof(float));
}

inline void write_rows(const float* from, int64_t ld, float* to, int64_t stride, int64_t m, int64_t width) {
    for (int64_t i = 0; i < m; i++) copy_row(to + i * stride, from + i * ld, width);
}

inline vec sigmoid(vec x) { return splat(1.0f) / (splat(1.0f) + exp(-x)); }

inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }  // torch's threshold

inline vec map(vec x, int64_t phi) {
    if (phi == phi_elu) return x > vec{} ? x + splat(1.0f) : exp(x);
    if (phi == phi_relu) return at_least(x, 0.0f);
    if (phi == phi_silu) return x * sigmoid(x);
    if (phi == phi_softplus)
        for (int i = 0; i < W; i++) x[i] = softplus(x[i]);
    return x;
}

// φ' at x; y = φ(x).
inline vec slope(vec x, vec y, int64_t phi) {
    if (phi == phi_elu) return at_most(y, 1.0f);
    if (phi == phi_relu) return x > vec{} ? splat(1.0f) : vec{};
    if (phi == phi_softplus) return sigmoid(x);
    if (phi == phi_silu) {
        vec s = sigmoid(x);
        return s * (splat(1.0f) + x * (splat(1.0f) - s));
    }
    return splat(1.0f);
}

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

// The features of the queries or the keys of one chunk, in the scratch memory of a thread.
struct Features {
    const lrpe_problem& problem;
    int64_t width, delta_width;  // padded
    float *x, *plain, *encoded;  // C × width; without P and Λ, encoded and plain are x's memory or one another's
    float *delta;                // C × delta width: what Δ is summed from
    float *turn;                 // C × width: the rotation of each row
    float *own_delta;

    Features(const lrpe_problem& p, Scratch& memory) : problem(p), width(padded(p.f)), delta_width(padded(p.delta_width)) {
        x = memory.take(C * width);
        plain = p.phi == phi_identity && p.floor == 0 ? x : memory.take(C * width);
        encoded = p.reflections || p.turned ? memory.take(C * width) : plain;
        turn = p.turned ? memory.take(C * width) : nullptr;
        own_delta = p.delta == delta_given ? memory.take(C * delta_width) : nullptr;
        delta = p.delta == delta_plain ? plain : p.delta == delta_encoded ? encoded : own_delta;
    }

    static size_t floats(const lrpe_problem& p) { return 4 * C * padded(p.f) + C * padded(p.delta_width); }

    // Read rows t … t + m - 1 of batch b and head h; key_head chooses the rotation.
    void read(const Tensor& from, const Tensor& of_delta, int64_t b, int64_t h, int64_t key_head, int64_t t, int64_t m) {
        const lrpe_problem& p = problem;
        read_rows(x, width, from.at(b, h, t), from.row, m, p.f);
        if (own_delta) read_rows(own_delta, delta_width, of_delta.at(b, h, t), of_delta.row, m, p.delta_width);
        if (plain != x) {
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = 0; j < width; j += W)
                    store(plain + i * width + j, map(load(x + i * width + j), p.phi) + splat((float)p.floor));
                for (int64_t j = p.f; j < width; j++) plain[i * width + j] = 0;
            }
            if (m < C) std::memset(plain + m * width, 0, (C - m) * width * sizeof(float));
        }
        if (encoded == plain) return;
        for (int64_t i = 0; i < m; i++) {
            copy_row(encoded + i * width, plain + i * width, width);
            if (p.reflections) reflect(plain + i * width, encoded + i * width);
            if (p.turned) rotate(encoded + i * width, turn + i * width, p.turn.at(b, key_head, t + i));
        }
        if (m < C) std::memset(encoded + m * width, 0, (C - m) * width * sizeof(float));
    }

    // to -= 2 (from Vᵀ) U, for one row
    void reflect(const float* from, float* to) const {
        for (int64_t r = 0; r < problem.reflections; r++)
            add_scaled(to, -2 * dot(from, problem.V + r * width, width), problem.U + r * width, width);
    }

    // Turn one row by the angles whose cosines and sines are given; u keeps them, and 1 for features that stay.
    void rotate(float* row, float* u, const float* given) const {
        copy_row(u, given, problem.turned);
        for (int64_t j = problem.turned; j < width; j += 2) u[j] = 1, u[j + 1] = 0;
        for (int64_t j = 0; j < width; j += W) store(row + j, times(load(row + j), load(u + j)));
    }

    void forget_row(int64_t i) {
        std::memset(encoded + i * width, 0, width * sizeof(float));
        std::memset(plain + i * width, 0, width * sizeof(float));
        if (own_delta) std::memset(own_delta + i * delta_width, 0, delta_width * sizeof(float));
    }

    // Turn the gradient of encoded into that of x, in its memory; of_plain is that of φ(x) from Δ, or null.
    void pull_back(float* g, const float* of_plain, float* dturn, float* dV, float* dU, int64_t m) const {
        const lrpe_problem& p = problem;
        for (int64_t i = 0; i < m; i++) {
            float* row = g + i * width;
            if (p.turned) unrotate(row, i, dturn ? dturn + i * p.dturn_row : nullptr);
            if (p.reflections) unreflect(row, i, dV, dU);
            if (of_plain) add_scaled(row, 1.0f, of_plain + i * width, width);
            if (p.phi != phi_identity)
                for (int64_t j = 0; j < width; j += W)
                    store(row + j, load(row + j) * slope(load(x + i * width + j), load(plain + i * width + j), p.phi));
        }
    }

    // y = E ū because |u| = 1, so that the gradient g ȳ of u is g Ē u.
    void unrotate(float* row, int64_t i, float* dturn) const {
        const float *u = turn + i * width, *E = encoded + i * width;
        if (dturn) {
            int64_t j = 0;
            for (; j + W <= problem.turned; j += W)
                store(dturn + j, load(dturn + j) + times(times_conjugate(load(row + j), load(E + j)), load(u + j)));
            for (; j < problem.turned; j += 2) {
                float re = row[j] * E[j] + row[j + 1] * E[j + 1], im = row[j + 1] * E[j] - row[j] * E[j + 1];
                dturn[j] += re * u[j] - im * u[j + 1];
                dturn[j + 1] += re * u[j + 1] + im * u[j];
            }
        }
        for (int64_t j = 0; j < width; j += W) store(row + j, times_conjugate(load(row + j), load(u + j)));
    }

    void unreflect(float* row, int64_t i, float* dV, float* dU) const {
        const lrpe_problem& p = problem;
        const float* x_row = plain + i * width;
        constexpr int64_t MOST = 8;  // products with U, before the row changes; Python declines more
        float along[MOST];
        for (int64_t r = 0; r < p.reflections; r++) along[r] = -2 * dot(row, p.U + r * width, width);
        for (int64_t r = 0; r < p.reflections && dV; r++) {
            add_scaled(dV + r * width, along[r], x_row, width);
            add_scaled(dU + r * width, -2 * dot(x_row, p.V + r * width, width), row, width);
        }
        for (int64_t r = 0; r < p.reflections; r++) add_scaled(row, along[r], p.V + r * width, width);
    }
};

}  // namespace lrpe
