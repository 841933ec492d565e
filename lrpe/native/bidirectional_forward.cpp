// o = q S with S = Σ k vᵀ over all keys, and Δ = q'·z with z = Σ k'. With weights, the causal sum and the sum over later
// keys, which is a causal sum of the tokens in reverse order.
#include "causal_forward.h"
#include "reversed.h"

namespace lrpe {

struct SumForward {
    const lrpe_problem& p;
    int64_t F, E, D;  // padded widths of features, values, Δ's features
    Scratch memory;
    Features keys, queries;
    float *S, *V, *O, *Z;
    BlockSum states;
    std::vector<double> z;

    static size_t floats(const lrpe_problem& p) {
        int64_t F = padded(p.f), E = padded(p.e), D = padded(p.delta_width);
        return 2 * Features::floats(p) + 2 * F * E + 2 * C * E + D + 32 * 16;
    }

    explicit SumForward(const lrpe_problem& problem)
        : p(problem), F(padded(p.f)), E(padded(p.e)), D(padded(p.delta_width)), memory(floats(problem)),
          keys(problem, memory), queries(problem, memory), z(D) {
        S = memory.take(F * E), V = memory.take(C * E), O = memory.take(C * E), Z = memory.take(D);
        states = {S, memory.take(F * E), F, E};
    }

    void operator()(int64_t unit) {
        int64_t b = unit / p.key_heads, h = unit % p.key_heads, group = p.heads / p.key_heads;
        states.start();
        std::fill(z.begin(), z.end(), 0.0);
        for (int64_t t = 0; t < p.m; t += C) add_keys(b, h, t, std::min(C, p.m - t));
        finish(unit);
        for (int64_t head = h * group; head < (h + 1) * group; head++)
            for (int64_t t = 0; t < p.n; t += C) sum_of_queries(b, h, head, t, std::min(C, p.n - t));
    }

    void add_keys(int64_t b, int64_t h, int64_t t, int64_t m) {
        keys.read(p.k, p.delta_k, b, h, h, t, m);
        keys.hide_padding(b, t, m);
        read_rows(V, E, p.v.at(b, h, t), p.v.row, m, p.e);
        states.add(keys.encoded, V);
        if (p.delta) add_to_z(z.data(), keys.delta, m, D);
    }

    void finish(int64_t unit) {
        states.finish();
        for (int64_t i = 0; p.S_last && i < p.f; i++)
            std::memcpy(p.S_last + (unit * p.f + i) * p.e, S + i * E, p.e * sizeof(float));
        finish_z(z.data(), p.z_last ? p.z_last + unit * p.delta_width : nullptr, p.delta_width);
        finish_z(z.data(), Z, D);
    }

    void sum_of_queries(int64_t b, int64_t h, int64_t head, int64_t t, int64_t m) {
        queries.read(p.q, p.delta_q, b, head, h, t, m);
        multiply({queries.encoded, F, 1}, S, E, O, E, C, E, F, nothing);
        float scale[C] = {};
        for (int64_t i = 0; p.delta && i < m; i++) {
            float* total = p.total.at(b, head, t + i);
            *total = dot(queries.delta + i * D, Z, D);
            scale[i] = inverse(*total);
        }
        if (p.divide) scale_rows(O, O, E, scale, m);
        write_rows(O, E, p.out.at(b, head, t), p.out.row, m, p.e);
    }
};

// The causal sum, then that over later keys, which is added to it; the second divides.
struct BothWaysForward {
    lrpe_problem ahead, back;
    CausalForward first, second;

    explicit BothWaysForward(const lrpe_problem& p)
        : ahead(p), back(reversed(p)), first(ahead, Sees::own_and_earlier), second(back, Sees::earlier) {
        ahead.divide = 0;
    }

    void operator()(int64_t unit) {
        first(unit);
        second(unit);
    }
};

template <class Worker>
int run_forward(const lrpe_problem* p) {
    return for_each_unit(
        p->batch * p->key_heads, p->threads, [p](int64_t) { return Worker(*p); },
        [](int64_t unit, Worker& forward) { forward(unit); });
}

}  // namespace lrpe

extern "C" __attribute__((visibility("default"))) int lrpe_bidirectional_forward(const lrpe_problem* p) {
    return p->log_decay ? lrpe::run_forward<lrpe::BothWaysForward>(p) : lrpe::run_forward<lrpe::SumForward>(p);
}
