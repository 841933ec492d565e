// The features of a chunk: φ(x), its reflection x - 2 (x Vᵀ) U, its rotation; and their gradients.
#pragma once
#include "lambda.h"
#include "problem.h"
#include "threads.h"

namespace lrpe {

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

inline bool real(const lrpe_problem& p, int64_t b, int64_t t) { return p.mask[b * p.mask_batch + t * p.mask_row]; }

// The features of the queries or the keys of one chunk, in the scratch memory of a thread.
struct Features {
    const lrpe_problem& problem;
    int64_t d, width, delta_width;  // padded: of x and φ(x), of the encoded features, of Δ's
    float *x, *plain, *encoded;     // C rows each; without P and Λ, encoded and plain are x's memory or one another's
    float *delta;                   // C × delta width: what Δ is summed from
    float *own_delta, *y;           // y: one row of P φ(x)
    const float* table = nullptr;   // Λ's, of the first row

    Features(const lrpe_problem& p, Scratch& memory)
        : problem(p), d(padded(p.d)), width(padded(p.f)), delta_width(padded(p.delta_width)) {
        x = memory.take(C * d);
        plain = p.phi == phi_identity && p.floor == 0 ? x : memory.take(C * d);
        encoded = p.reflections || p.lambda ? memory.take(C * width) : plain;
        own_delta = p.delta == delta_given ? memory.take(C * delta_width) : nullptr;
        y = memory.take(d);
        delta = p.delta == delta_plain ? plain : p.delta == delta_encoded ? encoded : own_delta;
    }

    static size_t floats(const lrpe_problem& p) {
        return (2 * C + 1) * padded(p.d) + C * padded(p.f) + C * padded(p.delta_width);
    }

    // Read rows t … t + m - 1 of batch b and head h; key_head chooses Λ.
    void read(const Tensor& from, const Tensor& of_delta, int64_t b, int64_t h, int64_t key_head, int64_t t, int64_t m) {
        const lrpe_problem& p = problem;
        read_rows(x, d, from.at(b, h, t), from.row, m, p.d);
        if (own_delta) read_rows(own_delta, delta_width, of_delta.at(b, h, t), of_delta.row, m, p.delta_width);
        if (plain != x) {
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = 0; j < d; j += W)
                    store(plain + i * d + j, map(load(x + i * d + j), p.phi) + splat((float)p.floor));
                for (int64_t j = p.d; j < d; j++) plain[i * d + j] = 0;
            }
            if (m < C) std::memset(plain + m * d, 0, (C - m) * d * sizeof(float));
        }
        if (encoded == plain) return;
        table = p.turn.at(b, key_head, t);
        for (int64_t i = 0; i < m; i++) encode_row(i);
        if (m < C) std::memset(encoded + m * width, 0, (C - m) * width * sizeof(float));
    }

    void encode_row(int64_t i) const {
        const lrpe_problem& p = problem;
        float* to = encoded + i * width;
        bool in_place = p.lambda == lambda_identity || p.lambda == lambda_rotation;
        float* reflected = in_place ? to : y;
        copy_row(reflected, plain + i * d, d);
        if (p.reflections) reflect(plain + i * d, reflected);
        if (p.lambda == lambda_rotation) rotate(to, table + i * p.turn.row, p.turned);
        if (p.lambda == lambda_unitary) spread(y, to, table + i * p.turn.row, p.d, width);
        if (p.lambda == lambda_permutation) gather(y, to, table_index(i), p.d, width);
    }

    const int32_t* table_index(int64_t i) const { return reinterpret_cast<const int32_t*>(table + i * problem.turn.row); }

    // to -= 2 (from Vᵀ) U, for one row
    void reflect(const float* from, float* to) const {
        for (int64_t r = 0; r < problem.reflections; r++)
            add_scaled(to, -2 * dot(from, problem.V + r * d, d), problem.U + r * d, d);
    }

    // Replace the features of padding among the keys t … t + m - 1 by 0.
    void hide_padding(int64_t b, int64_t t, int64_t m) {
        for (int64_t i = 0; problem.mask && i < m; i++)
            if (!real(problem, b, t + i)) forget_row(i);
    }

    void forget_row(int64_t i) {
        std::memset(encoded + i * width, 0, width * sizeof(float));
        std::memset(plain + i * d, 0, d * sizeof(float));
        if (own_delta) std::memset(own_delta + i * delta_width, 0, delta_width * sizeof(float));
    }

    // Turn the gradient of encoded into that of x, at the beginning of each of its rows; of_plain is that of φ(x) from
    // Δ, or null.
    void pull_back(float* g, const float* of_plain, float* dturn, float* dV, float* dU, int64_t m) const {
        const lrpe_problem& p = problem;
        for (int64_t i = 0; i < m; i++) {
            float* row = g + i * width;
            float* of_turn = dturn ? dturn + i * p.dturn_row : nullptr;
            if (p.lambda == lambda_rotation) unrotate(row, encoded + i * width, table + i * p.turn.row, of_turn, p.turned);
            if (p.lambda == lambda_unitary) unspread(row, encoded + i * width, table + i * p.turn.row, of_turn, p.d, d);
            if (p.lambda == lambda_permutation) scatter(row, y, table_index(i), p.d);
            if (p.reflections) unreflect(row, i, dV, dU);
            if (of_plain) add_scaled(row, 1.0f, of_plain + i * d, d);
            if (p.phi != phi_identity)
                for (int64_t j = 0; j < d; j += W)
                    store(row + j, load(row + j) * slope(load(x + i * d + j), load(plain + i * d + j), p.phi));
        }
    }

    void unreflect(float* row, int64_t i, float* dV, float* dU) const {
        const lrpe_problem& p = problem;
        const float* x_row = plain + i * d;
        constexpr int64_t MOST = 8;  // products with U, before the row changes; Python declines more
        float along[MOST];
        for (int64_t r = 0; r < p.reflections; r++) along[r] = -2 * dot(row, p.U + r * d, d);
        for (int64_t r = 0; r < p.reflections && dV; r++) {
            add_scaled(dV + r * d, along[r], x_row, d);
            add_scaled(dU + r * d, -2 * dot(x_row, p.V + r * d, d), row, d);
        }
        for (int64_t r = 0; r < p.reflections; r++) add_scaled(row, along[r], p.V + r * d, d);
    }
};

}  // namespace lrpe
