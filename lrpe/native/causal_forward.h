// o = A v + (q ∘ before) S per chunk, with A the weighted scores; then S ← carry S + (k ∘ after)ᵀ v.
#pragma once
#include "decay.h"

namespace lrpe {

struct CausalForward {
    const lrpe_problem& p;
    int64_t F, E, D;  // padded widths of features, values, Δ's features
    Scratch memory;
    Features keys, queries;
    Weights weights;
    float *S, *V, *faded, *KT, *A, *O, *Z;
    std::vector<double> z;

    static size_t floats(const lrpe_problem& p) {
        int64_t F = padded(p.f), E = padded(p.e), D = padded(p.delta_width);
        return 2 * Features::floats(p) + Weights::floats() + F * E + D + C * (3 * E + F + C + D) + 64 * 16;
    }

    CausalForward(const lrpe_problem& problem, Sees sees)
        : p(problem), F(padded(p.f)), E(padded(p.e)), D(padded(p.delta_width)), memory(floats(problem)),
          keys(problem, memory), queries(problem, memory), weights(memory, sees), z(D) {
        S = memory.take(F * E), V = memory.take(C * E), faded = memory.take(C * E);
        KT = memory.take(F * C), A = memory.take(C * C), O = memory.take(C * E), Z = memory.take(C * D);
    }

    void operator()(int64_t unit) {
        int64_t b = unit / p.key_heads, h = unit % p.key_heads;
        start(unit);
        weights.known = 0;
        for (int64_t t = 0; t < p.n; t += C) chunk(b, h, t, p.n - t < C ? p.n - t : C);
        finish(unit);
    }

    void start(int64_t unit) {
        std::memset(S, 0, F * E * sizeof(float));
        start_z(z.data(), p.z ? p.z + unit * p.delta_width : nullptr, p.delta_width, D);
        if (p.S)
            for (int64_t i = 0; i < p.f; i++)
                std::memcpy(S + i * E, p.S + (unit * p.f + i) * p.e, p.e * sizeof(float));
    }

    void finish(int64_t unit) {
        if (p.S_last)
            for (int64_t i = 0; i < p.f; i++)
                std::memcpy(p.S_last + (unit * p.f + i) * p.e, S + i * E, p.e * sizeof(float));
        finish_z(z.data(), p.z_last ? p.z_last + unit * p.delta_width : nullptr, p.delta_width);
    }

    void chunk(int64_t b, int64_t h, int64_t t, int64_t m) {
        weights.read(p, b, h, t, m);
        keys.read(p.k, p.delta_k, b, h, h, t, m);
        keys.hide_padding(b, t, m);
        read_rows(V, E, p.v.at(b, h, t), p.v.row, m, p.e);
        transpose(keys.encoded, F, KT, C, C, F);
        if (p.delta) {
            std::memcpy(Z, keys.delta, C * D * sizeof(float));
            run_z(z.data(), Z, weights, m, D, false);
        }
        int64_t group = p.heads / p.key_heads;
        for (int64_t head = h * group; head < (h + 1) * group; head++) query_head(b, h, head, t, m);
        scale_rows(faded, V, E, weights.after, C);
        forget_rows(keys.encoded, F, weights.after, C);
        multiply({keys.encoded, 1, F}, faded, E, S, E, F, E, C, {&weights.carry, 0});
    }

    void query_head(int64_t b, int64_t h, int64_t head, int64_t t, int64_t m) {
        queries.read(p.q, p.delta_q, b, head, h, t, m);
        multiply<Part::lower_result>({queries.encoded, F, 1}, KT, C, A, C, C, C, F, nothing);
        weights.apply(A);
        multiply({queries.encoded, F, 1}, S, E, O, E, C, E, F, nothing);
        multiply<Part::lower_a>({A, C, 1}, V, E, O, E, C, E, C, {weights.before, 1});
        if (weights.sees == Sees::earlier) add_first_sweep(b, head, t, m);
        if (p.delta) divide(b, head, t, m);
        write_rows(O, E, p.out.at(b, head, t), p.out.row, m, p.e);
    }

    void add_first_sweep(int64_t b, int64_t head, int64_t t, int64_t m) {
        add_rows(p.out.at(b, head, t), p.out.row, O, E, m, p.e);
    }

    void divide(int64_t b, int64_t head, int64_t t, int64_t m) {
        float scale[C] = {};
        for (int64_t i = 0; i < m; i++) {
            float *total = p.total.at(b, head, t + i), before = weights.sees == Sees::earlier ? *total : 0;
            *total = before + dot(queries.delta + i * D, Z + i * D, D);
            scale[i] = inverse(*total);
        }
        if (p.divide) scale_rows(O, O, E, scale, m);
    }
};

}  // namespace lrpe
