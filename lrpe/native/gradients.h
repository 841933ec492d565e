// What every backward pass does with a chunk: read the queries with the gradient of their sums, and pull the gradients of
// features back to q and k.
#pragma once
#include "decay.h"

namespace lrpe {

struct Gradients {
    const lrpe_problem& p;
    int64_t F, E, D;  // padded widths of features, values, Δ's features
    Scratch memory;
    Features keys, queries;
    const bool adds;  // to the gradients of an earlier sweep, instead of writing them
    float *V, *G, *GT, *dQ, *dK, *dV, *dP;
    float *dturn, *dV_basis, *dU_basis;

    static size_t floats(const lrpe_problem& p) {
        int64_t F = padded(p.f), E = padded(p.e), D = padded(p.delta_width);
        return 2 * Features::floats(p) + C * (3 * E + 2 * F + D + 1) + 32 * 16;
    }

    Gradients(const lrpe_problem& problem, int64_t thread, bool adds, size_t more)
        : p(problem), F(padded(p.f)), E(padded(p.e)), D(padded(p.delta_width)), memory(floats(problem) + more),
          keys(problem, memory), queries(problem, memory), adds(adds) {
        V = memory.take(C * E), G = memory.take(C * E), GT = memory.take(C), dV = memory.take(C * E);
        dQ = memory.take(C * F), dK = memory.take(C * F), dP = memory.take(C * D);
        dturn = p.dturn ? p.dturn + thread * p.dturn_size : nullptr;
        dV_basis = p.dV ? p.dV + thread * p.reflections * padded(p.d) : nullptr;
        dU_basis = p.dU ? p.dU + thread * p.reflections * padded(p.d) : nullptr;
    }

    void read_keys(int64_t b, int64_t h, int64_t t, int64_t m) {
        keys.read(p.k, p.delta_k, b, h, h, t, m);
        keys.hide_padding(b, t, m);
        read_rows(V, E, p.v.at(b, h, t), p.v.row, m, p.e);
    }

    // Read a query head, the gradient G of its sum and GT of its Δ. For y = x / Δ they are g / Δ and -(g / Δ)·y.
    void read_queries(int64_t b, int64_t h, int64_t head, int64_t t, int64_t m) {
        queries.read(p.q, p.delta_q, b, head, h, t, m);
        read_rows(G, E, p.g.at(b, head, t), p.g.row, m, p.e);
        for (int64_t i = 0; i < C; i++) GT[i] = p.g_total.p && i < m ? *p.g_total.at(b, head, t + i) : 0;
        if (!p.divide) return;
        float scale[C] = {};
        for (int64_t i = 0; i < m; i++) scale[i] = inverse(*p.total.at(b, head, t + i));
        scale_rows(G, E, scale, m);
        for (int64_t i = 0; i < m; i++)
            if (!(std::fabs(*p.total.at(b, head, t + i)) < 1.17549435e-38f)) GT[i] -= along_output(i, b, head, t);
    }

    float along_output(int64_t i, int64_t b, int64_t head, int64_t t) const {
        const float* y = p.out.at(b, head, t + i);
        prefetch_row<0>(y + C * p.out.row, p.e);
        int64_t j = 0;
        vec lanes{};
        for (; j + W <= p.e; j += W) lanes += load(G + i * E + j) * load(y + j);
        float along = sum(lanes);
        for (; j < p.e; j++) along += G[i * E + j] * y[j];
        return along;
    }

    // Padding has no gradient, even where the sums are NaN.
    void hide_padding(int64_t b, int64_t t, int64_t m) {
        for (int64_t i = 0; p.mask && i < m; i++)
            if (!real(p, b, t + i)) {
                std::memset(dK + i * F, 0, F * sizeof(float));
                std::memset(dP + i * D, 0, D * sizeof(float));
            }
    }

    // Pull the gradients of the features, g and for Δ's own dP, back to x, and write them.
    void finish_side(Features& side, const Tensor& dx, const Tensor& ddelta, float* g, int64_t b, int64_t h, int64_t head,
                     int64_t t, int64_t m) {
        float* turned = dturn ? dturn + b * p.dturn_batch + h * p.dturn_head + t * p.dturn_row : nullptr;
        side.pull_back(g, p.delta == delta_plain ? dP : nullptr, turned, dV_basis, dU_basis, m);
        write(g, F, dx, b, head, t, m, p.d);
        if (p.delta == delta_given) write(dP, D, ddelta, b, head, t, m, p.delta_width);
    }

    void write(const float* from, int64_t ld, const Tensor& to, int64_t b, int64_t h, int64_t t, int64_t m, int64_t width) {
        if (adds)
            add_rows(from, ld, to.at(b, h, t), to.row, m, width);
        else
            write_rows(from, ld, to.at(b, h, t), to.row, m, width);
    }
};

}  // namespace lrpe
