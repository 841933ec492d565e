// The gradients of o = q S and Δ = q'·z, given S and z: dq = g Sᵀ and dS = Σ qᵀ g over the queries, then dk = v dSᵀ and
// dv = k dS over the keys. With weights, those of the causal sum and of the sum over later keys.
#include "causal_backward.h"
#include "reversed.h"

namespace lrpe {

struct SumBackward : Gradients {
    float *S, *T, *Z;  // dS, F × E; Sᵀ and then dSᵀ, E × F; z and then dz
    BlockSum states;   // of dS
    std::vector<double> dz;

    static size_t floats(const lrpe_problem& p) {
        return 3 * padded(p.f) * padded(p.e) + padded(p.delta_width) + 16 * 16;
    }

    SumBackward(const lrpe_problem& problem, int64_t thread)
        : Gradients(problem, thread, false, false, floats(problem)), dz(D) {
        S = memory.take(F * E), T = memory.take(F * E), Z = memory.take(D);
        states = {S, memory.take(F * E), F, E};
    }

    void operator()(int64_t unit) {
        int64_t b = unit / p.key_heads, h = unit % p.key_heads, group = p.heads / p.key_heads;
        start(unit);
        for (int64_t head = h * group; head < (h + 1) * group; head++)
            for (int64_t t = 0; t < p.n; t += C) of_queries(b, h, head, t, std::min(C, p.n - t));
        states.finish();
        finish_z(dz.data(), Z, D);
        transpose(S, E, T, F, F, E);
        for (int64_t t = 0; t < p.m; t += C) of_keys(b, h, t, std::min(C, p.m - t));
    }

    void start(int64_t unit) {
        std::memset(T, 0, F * E * sizeof(float));
        for (int64_t i = 0; i < p.f; i++)
            for (int64_t j = 0; j < p.e; j++) T[j * F + i] = p.S[(unit * p.f + i) * p.e + j];
        for (int64_t j = 0; j < D; j++) Z[j] = j < p.delta_width ? p.z[unit * p.delta_width + j] : 0;
        states.start();
        std::fill(dz.begin(), dz.end(), 0.0);
    }

    void of_queries(int64_t b, int64_t h, int64_t head, int64_t t, int64_t m) {
        read_queries(b, h, head, t, m);
        multiply({G, E, 1}, T, F, dQ, F, C, F, E, nothing);
        states.add(queries.encoded, G);
        if (p.delta) {
            scale_rows(dP, queries.delta, D, GT, m);
            add_to_z(dz.data(), dP, m, D);
            of_delta(dQ, GT, m);
        }
        finish_side(queries, p.dq, p.ddelta_q, dQ, b, h, head, t, m);
    }

    void of_keys(int64_t b, int64_t h, int64_t t, int64_t m) {
        read_keys(b, h, t, m);
        multiply({V, E, 1}, T, F, dK, F, C, F, E, nothing);
        multiply({keys.encoded, F, 1}, S, E, dV, E, C, E, F, nothing);
        if (p.delta) of_delta(dK, nullptr, m);
        hide_padding(b, t, m);
        finish_side(keys, p.dk, p.ddelta_k, dK, b, h, h, t, m);
        write(dV, E, p.dv, b, h, t, m, p.e);
    }

    // dP = scale ∘ Z, or Z in every row: the gradient of Δ's features, which is part of g if these are the encoded ones.
    void of_delta(float* g, const float* scale, int64_t m) {
        for (int64_t i = 0; i < m; i++) copy_row(dP + i * D, Z, D);
        if (scale) scale_rows(dP, dP, D, scale, m);
        for (int64_t i = 0; p.delta == delta_encoded && i < m; i++) add_scaled(g + i * F, 1, dP + i * D, F);
    }
};

// The gradients of the causal sum, to which those of the sum over later keys are added. In reverse order the summed
// log-decay has the opposite sign.
struct BothWaysBackward {
    lrpe_problem back;
    CausalBackward first, second;

    BothWaysBackward(const lrpe_problem& p, int64_t thread)
        : back(reversed(p)), first(p, thread, Sees::own_and_earlier), second(back, thread, Sees::earlier) {}

    void operator()(int64_t unit) {
        first.sweep(unit);
        second.sweep(unit);
        if (!back.dlog_decay) return;
        double total = 0;
        for (int64_t n = back.n, t = n - 1; t >= 0; t--)
            back.dlog_decay[unit * n + t] = total += first.of_c[t] - second.of_c[n - 1 - t];
    }
};

template <class Worker>
int run_backward(const lrpe_problem* p) {
    return for_each_unit(
        p->batch * p->key_heads, p->threads, [p](int64_t thread) { return Worker(*p, thread); },
        [](int64_t unit, Worker& backward) { backward(unit); });
}

}  // namespace lrpe

extern "C" __attribute__((visibility("default"))) int lrpe_bidirectional_backward(const lrpe_problem* p) {
    return p->log_decay ? lrpe::run_backward<lrpe::BothWaysBackward>(p) : lrpe::run_backward<lrpe::SumBackward>(p);
}
