// The gradients of the causal sum in two sweeps over the chunks, each of which computes the features again. Forwards,
// with Sᵀ = Σ v kᵀ:  dq = dA k + g Sᵀ.  Backwards, with dS the gradient of the state after the chunk:
// dk = dAᵀ q + v dSᵀ and dv = Aᵀ g + k dS. The gradient of the summed log-decay c_t is dq_t·q_t - dk_t·k_t.
#include "decay.h"
#include "threads.h"

namespace lrpe {

struct Backward {
    const lrpe_problem& p;
    int64_t F, E, D;
    Scratch memory;
    Features keys, queries;
    Weights weights;
    float *S, *T, *V, *VT, *KT, *A, *G, *GT, *faded, *dQ, *dK, *dV, *Z, *dP;
    float *dturn, *dV_basis, *dU_basis;
    std::vector<double> z;
    std::vector<double> of_c;  // the gradient of c_t

    static size_t floats(const lrpe_problem& p) {
        int64_t F = padded(p.f), E = padded(p.e), D = padded(p.delta_width);
        int64_t most = E > F ? E : F;
        return 2 * Features::floats(p) + Weights::floats() + 2 * F * E + D + C * (6 * E + 3 * F + C + 3 * D + most) + 64 * 16;
    }

    Backward(const lrpe_problem& problem, int64_t thread)
        : p(problem), F(padded(p.f)), E(padded(p.e)), D(padded(p.delta_width)), memory(floats(problem)),
          keys(problem, memory), queries(problem, memory), weights(memory), z(D), of_c(problem.dlog_decay ? problem.n : 0) {
        S = memory.take(F * E), T = memory.take(F * E), V = memory.take(C * E);
        VT = memory.take(C * E), KT = memory.take(C * F), A = memory.take(C * C), G = memory.take(C * E);
        faded = memory.take(C * (E > F ? E : F)), dQ = memory.take(C * F), dK = memory.take(C * F), dV = memory.take(C * E);
        Z = memory.take(C * D), dP = memory.take(C * D), GT = memory.take(C);
        dturn = p.dturn ? p.dturn + thread * p.dturn_size : nullptr;
        dV_basis = p.dV ? p.dV + thread * p.reflections * F : nullptr;
        dU_basis = p.dU ? p.dU + thread * p.reflections * F : nullptr;
    }

    void operator()(int64_t unit) {
        int64_t b = unit / p.key_heads, h = unit % p.key_heads, chunks = (p.n + C - 1) / C;
        weights.known = 0;
        start_forwards(unit);
        for (int64_t c = 0; c < chunks; c++) forwards(b, h, c * C, length(c));
        double last = p.dlog_decay ? gradient_of_last(unit) : 0;
        start_backwards(unit);
        for (int64_t c = chunks - 1; c >= 0; c--) backwards(b, h, c * C, length(c));
        finish(unit);
        if (!p.dlog_decay) return;
        for (int64_t t = p.n - 1; t >= 0; t--) p.dlog_decay[unit * p.n + t] = last += of_c[t];
    }

    int64_t length(int64_t c) const { return p.n - c * C < C ? p.n - c * C : C; }

    void start_forwards(int64_t unit) {  // S here is the transposed state, E × F
        std::memset(S, 0, F * E * sizeof(float));
        start_z(z.data(), p.z ? p.z + unit * p.delta_width : nullptr, p.delta_width, D);
        for (int64_t i = 0; p.S && i < p.f; i++)
            for (int64_t j = 0; j < p.e; j++) S[j * F + i] = p.S[(unit * p.f + i) * p.e + j];
        std::fill(of_c.begin(), of_c.end(), 0.0);
    }

    double gradient_of_last(int64_t unit) const {
        double total = 0;
        for (int64_t i = 0; p.g_S && i < p.f; i++)
            for (int64_t j = 0; j < p.e; j++) total += (double)p.g_S[(unit * p.f + i) * p.e + j] * S[j * F + i];
        for (int64_t j = 0; p.g_z && j < p.delta_width; j++) total += (double)p.g_z[unit * p.delta_width + j] * z[j];
        return total;
    }

    void start_backwards(int64_t unit) {  // S here is dS, F × E, and z is dz
        std::memset(S, 0, F * E * sizeof(float));
        start_z(z.data(), p.g_z ? p.g_z + unit * p.delta_width : nullptr, p.delta_width, D);
        for (int64_t i = 0; p.g_S && i < p.f; i++)
            std::memcpy(S + i * E, p.g_S + (unit * p.f + i) * p.e, p.e * sizeof(float));
    }

    void finish(int64_t unit) {
        for (int64_t i = 0; p.dS && i < p.f; i++)
            std::memcpy(p.dS + (unit * p.f + i) * p.e, S + i * E, p.e * sizeof(float));
        finish_z(z.data(), p.dz ? p.dz + unit * p.delta_width : nullptr, p.delta_width);
    }

    void read_keys(int64_t b, int64_t h, int64_t t, int64_t m) {
        weights.read(p, b, h, t, m);
        keys.read(p.k, p.delta_k, b, h, h, t, m);
        for (int64_t i = 0; p.mask && i < m; i++)
            if (!real(b, t + i)) keys.forget_row(i);
        read_rows(V, E, p.v.at(b, h, t), p.v.row, m, p.e);
        transpose(V, E, VT, C, C, E);
    }

    bool real(int64_t b, int64_t t) const { return p.mask[b * p.mask_batch + t * p.mask_row]; }

    // Read a query head, the gradient G of its sum and GT of its Δ. For y = x / Δ they are g / Δ and -(g / Δ)·y.
    void read_queries(int64_t b, int64_t h, int64_t head, int64_t t, int64_t m) {
        queries.read(p.q, p.delta_q, b, head, h, t, m);
        read_rows(G, E, p.g.at(b, head, t), p.g.row, m, p.e);
        const int64_t row = (b * p.heads + head) * p.n + t;
        for (int64_t i = 0; i < C; i++) GT[i] = p.g_total && i < m ? p.g_total[row + i] : 0;
        if (!p.divide) return;
        float scale[C] = {};
        for (int64_t i = 0; i < m; i++) scale[i] = inverse(p.total[row + i]);
        scale_rows(G, E, scale, m);
        for (int64_t i = 0; i < m; i++) {
            const float* y = p.out.at(b, head, t + i);
            int64_t j = 0;
            vec lanes{};
            for (; j + W <= p.e; j += W) lanes += load(G + i * E + j) * load(y + j);
            float along = sum(lanes);
            for (; j < p.e; j++) along += G[i * E + j] * y[j];
            if (!(std::fabs(p.total[row + i]) < 1.17549435e-38f)) GT[i] -= along;
        }
    }

    void forwards(int64_t b, int64_t h, int64_t t, int64_t m) {
        read_keys(b, h, t, m);
        if (p.delta) {
            std::memcpy(Z, keys.delta, C * D * sizeof(float));
            run_z(z.data(), Z, weights, m, D, false);
        }
        int64_t group = p.heads / p.key_heads;
        for (int64_t head = h * group; head < (h + 1) * group; head++) {
            read_queries(b, h, head, t, m);
            multiply<Part::lower_result>({G, E, 1}, VT, C, A, C, C, C, E, 0);
            weights.apply(A);
            multiply({G, E, 1}, S, F, dQ, F, C, F, E, 0);
            scale_rows(dQ, F, weights.before, C);
            multiply<Part::lower_a>({A, C, 1}, keys.encoded, F, dQ, F, C, F, C, 1);
            if (p.delta) of_delta_queries(m);
            finish_side(queries, p.dq, p.ddelta_q, dQ, b, h, head, t, m, 1);
        }
        std::memcpy(faded, V, C * E * sizeof(float));
        scale_rows(faded, E, weights.after, C);
        multiply({faded, 1, E}, keys.encoded, F, S, F, E, F, C, weights.carry);
    }

    void of_delta_queries(int64_t m) {
        std::memcpy(dP, Z, C * D * sizeof(float));
        scale_rows(dP, D, GT, m);
        if (p.delta == delta_encoded)
            for (int64_t i = 0; i < m; i++) add_scaled(dQ + i * F, 1, dP + i * D, F);
    }

    // Count c's gradient, pull the gradients of the features back to x, and write them.
    void finish_side(Features& side, const Tensor& dx, const Tensor& ddelta, float* g, int64_t b, int64_t h, int64_t head,
                     int64_t t, int64_t m, double sign) {
        bool apart = p.delta == delta_plain || p.delta == delta_given;
        for (int64_t i = 0; p.dlog_decay && i < m; i++) {
            of_c[t + i] += sign * dot(g + i * F, side.encoded + i * F, F);
            if (apart) of_c[t + i] += sign * dot(dP + i * D, side.delta + i * D, D);
        }
        float* turned = dturn ? dturn + b * p.dturn_batch + h * p.dturn_head + t * p.dturn_row : nullptr;
        side.pull_back(g, p.delta == delta_plain ? dP : nullptr, turned, dV_basis, dU_basis, m);
        write_rows(g, F, dx.at(b, head, t), dx.row, m, p.f);
        if (p.delta == delta_given) write_rows(dP, D, ddelta.at(b, head, t), ddelta.row, m, p.delta_width);
    }

    void backwards(int64_t b, int64_t h, int64_t t, int64_t m) {
        read_keys(b, h, t, m);
        transpose(keys.encoded, F, KT, C, C, F);
        transpose(S, E, T, F, F, E);
        multiply({V, E, 1}, T, F, dK, F, C, F, E, 0);
        scale_rows(dK, F, weights.after, C);
        multiply({keys.encoded, F, 1}, S, E, dV, E, C, E, F, 0);
        scale_rows(dV, E, weights.after, C);
        std::memset(Z, 0, C * D * sizeof(float));
        int64_t group = p.heads / p.key_heads;
        float keep = weights.carry;
        for (int64_t head = h * group; head < (h + 1) * group; head++, keep = 1) {
            read_queries(b, h, head, t, m);
            multiply<Part::lower_result>({queries.encoded, F, 1}, KT, C, A, C, C, C, F, 0);
            weights.apply(A);
            multiply<Part::upper_a>({A, 1, C}, G, E, dV, E, C, E, C, 1);
            multiply<Part::lower_result>({G, E, 1}, VT, C, A, C, C, C, E, 0);
            weights.apply(A);
            multiply<Part::upper_a>({A, 1, C}, queries.encoded, F, dK, F, C, F, C, 1);
            for (int64_t i = 0; p.delta && i < m; i++) add_scaled(Z + i * D, GT[i], queries.delta + i * D, D);
            scale_rows(G, E, weights.before, C);
            multiply({queries.encoded, 1, F}, G, E, S, E, F, E, C, keep);
        }
        if (p.delta) of_delta_keys(m);
        for (int64_t i = 0; p.mask && i < m; i++)
            if (!real(b, t + i)) {
                std::memset(dK + i * F, 0, F * sizeof(float));
                std::memset(dP + i * D, 0, D * sizeof(float));
            }
        finish_side(keys, p.dk, p.ddelta_k, dK, b, h, h, t, m, -1);
        write_rows(dV, E, p.dv.at(b, h, t), p.dv.row, m, p.e);
    }

    // dz_t = g_t q'_t + r_{t+1} dz_{t+1} is the gradient of key t; afterwards z is that of the state before the chunk.
    void of_delta_keys(int64_t m) {
        std::memcpy(dP, Z, C * D * sizeof(float));
        run_z(z.data(), dP, weights, m, D, true);
        for (int64_t i = 0; p.delta == delta_encoded && i < m; i++) add_scaled(dK + i * F, 1, dP + i * D, F);
    }
};

}  // namespace lrpe

extern "C" __attribute__((visibility("default"))) int lrpe_causal_backward(const lrpe_problem* p) {
    return lrpe::for_each_unit(
        p->batch * p->key_heads, p->threads, [p](int64_t thread) { return lrpe::Backward(*p, thread); },
        [](int64_t unit, lrpe::Backward& backward) { backward(unit); });
}
