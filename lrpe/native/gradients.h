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
    AngleGradients angles;
    float *dturn, *dV_basis, *dU_basis;

    static size_t floats(const lrpe_problem& p) {
        int64_t F = padded(p.f), E = padded(p.e), D = padded(p.delta_width);
        return 2 * Features::floats(p) + AngleGradients::floats(p) + C * (3 * E + 2 * F + D + 1) + 32 * 16;
    }

    Gradients(const lrpe_problem& problem, int64_t thread, bool adds, bool has_states, size_t more)
        : p(problem), F(padded(p.f)), E(padded(p.e)), D(padded(p.delta_width)), memory(floats(problem) + more),
          keys(problem, memory), queries(problem, memory), adds(adds), angles(problem, memory, thread, !has_states) {
        V = memory.take(C * E), G = memory.take(C * E), GT = memory.take(C), dV = memory.take(C * E);
        dQ = memory.take(C * F), dK = memory.take(C * F), dP = memory.take(C * D);
        dturn = p.dturn ? p.dturn + thread * p.dturn_size : nullptr;
        dV_basis = p.dV ? p.dV + thread * p.reflections * padded(p.d) : nullptr;
        dU_basis = p.dU ? p.dU + thread * p.reflections * padded(p.d) : nullptr;
    }

    // Which chunk is read after this one: the next one, or the one before.
    void turn_to(int64_t ahead) { keys.ahead = queries.ahead = ahead; }

    void read_keys(int64_t b, int64_t h, int64_t t, int64_t m) {
        keys.read(p.k, p.delta_k, b, h, h, t, m);
        keys.hide_padding(b, t, m);
        read_rows(V, E, p.v.at(b, h, t), p.v.row, m, p.e, keys.ahead);
    }

    // Read a query head, the gradient G of its sum and GT of its Δ. For y = x / Δ they are g / Δ and -(g / Δ)·y.
    void read_queries(int64_t b, int64_t h, int64_t head, int64_t t, int64_t m) {
        queries.read(p.q, p.delta_q, b, head, h, t, m);
        for (int64_t i = 0; i < C; i++) GT[i] = p.g_total.p && i < m ? *p.g_total.at(b, head, t + i) : 0;
        if (p.divide && E == p.e)
            with_vectors(E, [&](auto vectors) { read_quotients<vectors()>(b, head, t, m); });
        else
            read_rows(G, E, p.g.at(b, head, t), p.g.row, m, p.e, queries.ahead);
        if (m < C) std::memset(G + m * E, 0, (C - m) * E * sizeof(float));
        if (p.divide && E != p.e) divide_rows(b, head, t, m);
    }

    template <int N>
    void read_quotients(int64_t b, int64_t head, int64_t t, int64_t m) {
        for (int64_t i = 0; i < m; i++) {
            const float *g = p.g.at(b, head, t + i), *y = p.out.at(b, head, t + i), total = *p.total.at(b, head, t + i);
            prefetch_row<0>(g + queries.ahead * p.g.row, E);
            prefetch_row<0>(y + queries.ahead * p.out.row, E);
            float scale = inverse(total);
            Row<N> row(G + i * E, E);
            vec along{};
            row.each([&](int64_t j) {
                row[j] = scale == 0 ? vec{} : load(g + j * W) * splat(scale);
                along += row[j] * load(y + j * W);
                store(G + i * E + j * W, row[j]);
            });
            if (!is_tiny(total)) GT[i] -= sum(along);
        }
    }

    // The same for rows that do not fill whole vectors.
    void divide_rows(int64_t b, int64_t head, int64_t t, int64_t m) {
        for (int64_t i = 0; i < m; i++) {
            const float *y = p.out.at(b, head, t + i), total = *p.total.at(b, head, t + i);
            float scale = inverse(total), along = 0;
            for (int64_t j = 0; j < p.e; j++) {
                G[i * E + j] = scale == 0 ? 0 : G[i * E + j] * scale;
                along += G[i * E + j] * y[j];
            }
            if (!is_tiny(total)) GT[i] -= along;
        }
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
        angles.start(b, h, t);
        with_vectors(side.d, [&](auto vectors) { finish_rows<vectors()>(side, dx.at(b, head, t), dx.row, g, turned, m); });
        angles.finish();
        if (p.delta == delta_given) write(dP, D, ddelta, b, head, t, m, p.delta_width);
    }

    template <int N>
    void finish_rows(Features& side, float* to, int64_t stride, float* g, float* turned, int64_t m) {
        for (int64_t i = 0; i < m; i++) {
            float *of_row = g + i * F, *result = to + i * stride;
            prefetch_row<1>(result + side.ahead * stride, p.d);
            Row<N> row(of_row, side.d);
            side.pull_back(row, of_row, i, p.delta == delta_plain ? dP + i * D : nullptr, angles, turned, dV_basis, dU_basis);
            if (side.d != p.d) {
                row.each([&](int64_t j) { store(of_row + j * W, row[j]); });
                adds ? add_rows(of_row, F, result, stride, 1, p.d) : copy_row(result, of_row, p.d);
            } else if (adds) {
                row.each([&](int64_t j) { store(result + j * W, load(result + j * W) + row[j]); });
            } else {
                row.each([&](int64_t j) { store(result + j * W, row[j]); });
            }
        }
    }

    void write(const float* from, int64_t ld, const Tensor& to, int64_t b, int64_t h, int64_t t, int64_t m, int64_t width) {
        if (adds)
            add_rows(from, ld, to.at(b, h, t), to.row, m, width);
        else
            write_rows(from, ld, to.at(b, h, t), to.row, m, width, keys.ahead);
    }
};

}  // namespace lrpe
