// The features of a chunk: φ(x), its reflection x - 2 (x Vᵀ) U, its rotation; and their gradients.
#pragma once
#include "angles.h"

namespace lrpe {

inline vec sigmoid(vec x) { return splat(1.0f) / (splat(1.0f) + exp(-x)); }

inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }  // torch's threshold

// φ of a row.
template <int N>
inline void map(Row<N>& x, int64_t phi, float floor) {
    if (phi == phi_elu) x.each([&](int64_t j) { x[j] = at_least(x[j], 0.0f) + exp(at_most(x[j], 0.0f)); });
    if (phi == phi_relu) x.each([&](int64_t j) { x[j] = at_least(x[j], 0.0f) + splat(floor); });
    if (phi == phi_silu) x.each([&](int64_t j) { x[j] = x[j] * sigmoid(x[j]); });
    if (phi == phi_softplus)
        x.each([&](int64_t j) {
            for (int i = 0; i < W; i++) x[j][i] = softplus(x[j][i]);
        });
}

// A row of gradients times φ' at x; y = φ(x).
template <int N>
inline void slope(Row<N>& g, const float* x, const float* y, int64_t phi) {
    if (phi == phi_elu) g.each([&](int64_t j) { g[j] *= at_most(load(y + j * W), 1.0f); });
    if (phi == phi_relu) g.each([&](int64_t j) { g[j] *= load(x + j * W) > vec{} ? splat(1.0f) : vec{}; });
    if (phi == phi_softplus) g.each([&](int64_t j) { g[j] *= sigmoid(load(x + j * W)); });
    if (phi == phi_silu)
        g.each([&](int64_t j) {
            vec s = sigmoid(load(x + j * W));
            g[j] *= s * (splat(1.0f) + load(x + j * W) * (splat(1.0f) - s));
        });
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
    int64_t ahead = C;              // from a chunk to the one that is read next

    Features(const lrpe_problem& p, Scratch& memory)
        : problem(p), d(padded(p.d)), width(padded(p.f)), delta_width(padded(p.delta_width)) {
        x = memory.take(C * d);
        plain = p.phi == phi_identity ? x : memory.take(C * d);
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
        const float* first = from.at(b, h, t);
        if (own_delta) read_rows(own_delta, delta_width, of_delta.at(b, h, t), of_delta.row, m, p.delta_width, ahead);
        if (p.lambda) table = p.turn.at(b, key_head, t);
        if (d != p.d) read_rows(x, d, first, from.row, m, p.d, ahead);
        with_vectors(d, [&](auto vectors) {
            for (int64_t i = 0; i < m; i++) {
                if (d == p.d) prefetch_row<0>(first + (i + ahead) * from.row, d);
                compute<vectors()>(d == p.d ? first + i * from.row : x + i * d, i);
            }
        });
        if (m == C) return;
        std::memset(plain + m * d, 0, (C - m) * d * sizeof(float));
        std::memset(encoded + m * width, 0, (C - m) * width * sizeof(float));
    }

    // Compute row i: φ(x), its reflection and Λ.
    template <int N>
    void compute(const float* from, int64_t i) const {
        const lrpe_problem& p = problem;
        Row<N> row(y, d);
        row.each([&](int64_t j) { row[j] = load(from + j * W); });
        if (needs_x()) row.each([&](int64_t j) { store(x + i * d + j * W, row[j]); });
        map(row, p.phi, (float)p.floor);
        row.each([&](int64_t j) { store(plain + i * d + j * W, row[j]); });
        for (int64_t j = p.d; j < d; j++) plain[i * d + j] = 0;
        if (encoded == plain) return;
        if (d != p.d) row.each([&](int64_t j) { row[j] = load(plain + i * d + j * W); });
        if (p.reflections) reflect(row, plain + i * d);
        const float* u = table + i * p.turn.row;
        if (p.lambda == lambda_rotation) row.each([&](int64_t j) { row[j] = times(row[j], load(u + j * W)); });
        bool in_place = p.lambda == lambda_identity || p.lambda == lambda_rotation;
        row.each([&](int64_t j) { store((in_place ? encoded + i * width : y) + j * W, row[j]); });
        if (p.lambda == lambda_unitary) spread(y, encoded + i * width, u, p.d, width);
        if (p.lambda == lambda_permutation) gather(y, encoded + i * width, table_index(i), p.d, width);
    }

    // Return whether φ' is computed from x, which φ(x) does not tell.
    bool needs_x() const { return problem.phi != phi_identity && problem.phi != phi_elu; }

    const int32_t* table_index(int64_t i) const { return reinterpret_cast<const int32_t*>(table + i * problem.turn.row); }

    // row -= 2 (from Vᵀ) U
    template <int N>
    void reflect(Row<N>& row, const float* from) const {
        for (int64_t r = 0; r < problem.reflections; r++) {
            const float *V = problem.V + r * d, *U = problem.U + r * d;
            vec lanes{};
            row.each([&](int64_t j) { lanes += load(from + j * W) * load(V + j * W); });
            vec along = splat(-2 * sum(lanes));
            row.each([&](int64_t j) { row[j] += along * load(U + j * W); });
        }
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

    // Turn a gradient g of row i of encoded, which may be overwritten, into that of x; of_plain is that of φ(x) from Δ, or
    // null.
    template <int N>
    void pull_back(Row<N>& row, float* g, int64_t i, const float* of_plain, AngleGradients& angles, float* dturn, float* dV,
                   float* dU) const {
        const lrpe_problem& p = problem;
        const float *E = encoded + i * width, *u = table + i * p.turn.row;
        float* of_turn = dturn ? dturn + i * p.dturn_row : nullptr;
        if (p.lambda == lambda_unitary) unspread(g, E, u, of_turn, p.d, d);
        if (p.lambda == lambda_permutation) scatter(g, y, table_index(i), p.d);
        row.each([&](int64_t j) { row[j] = load(g + j * W); });
        if (p.lambda == lambda_rotation) {
            if (angles.wanted()) angles.add(row, E, i);
            row.each([&](int64_t j) { row[j] = times_conjugate(row[j], load(u + j * W)); });
        }
        if (p.reflections) unreflect(row, i, dV, dU);
        if (of_plain) row.each([&](int64_t j) { row[j] += load(of_plain + j * W); });
        slope(row, x + i * d, plain + i * d, p.phi);
    }

    template <int N>
    void unreflect(Row<N>& row, int64_t i, float* dV, float* dU) const {
        const lrpe_problem& p = problem;
        const float* x_row = plain + i * d;
        constexpr int64_t MOST = 8;  // products with U, before the row changes; Python declines more
        float along[MOST];
        for (int64_t r = 0; r < p.reflections; r++) {
            vec lanes{};
            row.each([&](int64_t j) { lanes += row[j] * load(p.U + r * d + j * W); });
            along[r] = -2 * sum(lanes);
        }
        for (int64_t r = 0; r < p.reflections && dV; r++) {
            vec by = splat(along[r]), across = splat(-2 * dot(x_row, p.V + r * d, d));
            float *of_V = dV + r * d, *of_U = dU + r * d;
            row.each([&](int64_t j) {
                store(of_V + j * W, load(of_V + j * W) + by * load(x_row + j * W));
                store(of_U + j * W, load(of_U + j * W) + across * row[j]);
            });
        }
        for (int64_t r = 0; r < p.reflections; r++)
            row.each([&](int64_t j) { row[j] += splat(along[r]) * load(p.V + r * d + j * W); });
    }
};

}  // namespace lrpe
