// The gradients of the causal sum in two sweeps over the chunks, each of which computes the features again. Forwards,
// with Sᵀ = Σ v kᵀ:  dq = dA k + g Sᵀ.  Backwards, with dS the gradient of the state after the chunk:
// dk = dAᵀ q + v dSᵀ and dv = Aᵀ g + k dS. The gradient of the summed log-decay c_t is dq_t·q_t - dk_t·k_t.
#pragma once
#include "gradients.h"

namespace lrpe {

struct CausalBackward : Gradients {
    Weights weights;
    float *S, *T, *VT, *KT, *A, *faded, *Z;
    std::vector<double> z;
    std::vector<double> of_c;  // the gradient of c_t

    static size_t floats(const lrpe_problem& p) {
        int64_t F = padded(p.f), E = padded(p.e), D = padded(p.delta_width);
        return Weights::floats() + 2 * F * E + C * (2 * E + F + C + D) + 32 * 16;
    }

    CausalBackward(const lrpe_problem& problem, int64_t thread, Sees sees)
        : Gradients(problem, thread, sees == Sees::earlier, has_states(problem), floats(problem)), weights(memory, sees), z(D),
          of_c(problem.dlog_decay ? problem.n : 0) {
        S = memory.take(F * E), T = memory.take(F * E), VT = memory.take(C * E), KT = memory.take(C * F);
        A = memory.take(C * C), faded = memory.take(C * E), Z = memory.take(C * D);
    }

    static bool has_states(const lrpe_problem& p) { return p.S || p.z || p.g_S || p.g_z; }

    void operator()(int64_t unit) {
        double last = sweep(unit);
        if (!p.dlog_decay) return;
        for (int64_t t = p.n - 1; t >= 0; t--) p.dlog_decay[unit * p.n + t] = last += of_c[t];
    }

    // Compute all gradients but the log-decay's, which is summed from of_c and, of the last state, what this returns.
    double sweep(int64_t unit) {
        int64_t b = unit / p.key_heads, h = unit % p.key_heads, chunks = (p.n + C - 1) / C;
        weights.known = 0;
        start_forwards(unit);
        turn_to(C);
        for (int64_t c = 0; c < chunks; c++) forwards(b, h, c * C, length(c));
        double last = p.dlog_decay ? gradient_of_last(unit) : 0;
        start_backwards(unit);
        turn_to(-C);
        for (int64_t c = chunks - 1; c >= 0; c--) backwards(b, h, c * C, length(c));
        finish(unit);
        return last;
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

    void read_chunk(int64_t b, int64_t h, int64_t t, int64_t m) {
        weights.read(p, b, h, t, m);
        read_keys(b, h, t, m);
        transpose(V, E, VT, C, C, E);
    }

    void forwards(int64_t b, int64_t h, int64_t t, int64_t m) {
        read_chunk(b, h, t, m);
        if (p.delta) {
            std::memcpy(Z, keys.delta, C * D * sizeof(float));
            run_z(z.data(), Z, weights, m, D, false);
        }
        int64_t group = p.heads / p.key_heads;
        for (int64_t head = h * group; head < (h + 1) * group; head++) {
            read_queries(b, h, head, t, m);
            multiply<Part::lower_result>({G, E, 1}, VT, C, A, C, C, C, E, nothing);
            weights.apply(A);
            multiply({G, E, 1}, S, F, dQ, F, C, F, E, nothing);
            multiply<Part::lower_a>({A, C, 1}, keys.encoded, F, dQ, F, C, F, C, {weights.before, 1});
            if (p.delta) of_delta_queries(m);
            count_decay(queries, dQ, t, m, 1);
            finish_side(queries, p.dq, p.ddelta_q, dQ, b, h, head, t, m);
        }
        scale_rows(faded, V, E, weights.after, C);
        forget_rows(keys.encoded, F, weights.after, C);
        multiply({faded, 1, E}, keys.encoded, F, S, F, E, F, C, {&weights.carry, 0});
    }

    void of_delta_queries(int64_t m) {
        scale_rows(dP, Z, D, GT, m);
        if (p.delta == delta_encoded)
            for (int64_t i = 0; i < m; i++) add_scaled(dQ + i * F, 1, dP + i * D, F);
    }

    // Count the terms of c's gradient that contain this side's features, before these are pulled back.
    void count_decay(const Features& side, const float* g, int64_t t, int64_t m, double sign) {
        bool apart = p.delta == delta_plain || p.delta == delta_given;
        for (int64_t i = 0; p.dlog_decay && i < m; i++) {
            of_c[t + i] += sign * dot(g + i * F, side.encoded + i * F, F);
            if (apart) of_c[t + i] += sign * dot(dP + i * D, side.delta + i * D, D);
        }
    }

    void backwards(int64_t b, int64_t h, int64_t t, int64_t m) {
        read_chunk(b, h, t, m);
        transpose(keys.encoded, F, KT, C, C, F);
        transpose(S, E, T, F, F, E);
        multiply({V, E, 1}, T, F, dK, F, C, F, E, nothing);
        multiply({keys.encoded, F, 1}, S, E, dV, E, C, E, F, nothing);
        std::memset(Z, 0, C * D * sizeof(float));
        int64_t group = p.heads / p.key_heads;
        Keep fade = {weights.after, 1}, carry = {&weights.carry, 0};  // of what later chunks gave; once, for the first head
        for (int64_t head = h * group; head < (h + 1) * group; head++, fade = carry = everything) {
            read_queries(b, h, head, t, m);
            multiply<Part::lower_result>({queries.encoded, F, 1}, KT, C, A, C, C, C, F, nothing);
            weights.apply(A);
            multiply<Part::upper_a>({A, 1, C}, G, E, dV, E, C, E, C, fade);
            multiply<Part::lower_result>({G, E, 1}, VT, C, A, C, C, C, E, nothing);
            weights.apply(A);
            multiply<Part::upper_a>({A, 1, C}, queries.encoded, F, dK, F, C, F, C, fade);
            for (int64_t i = 0; p.delta && i < m; i++) add_scaled(Z + i * D, GT[i], queries.delta + i * D, D);
            scale_rows(G, G, E, weights.before, C);
            forget_rows(queries.encoded, F, weights.before, C);
            multiply({queries.encoded, 1, F}, G, E, S, E, F, E, C, carry);
        }
        if (p.delta) of_delta_keys(m);
        hide_padding(b, t, m);
        count_decay(keys, dK, t, m, -1);
        finish_side(keys, p.dk, p.ddelta_k, dK, b, h, h, t, m);
        write(dV, E, p.dv, b, h, t, m, p.e);
    }

    // dz_t = g_t q'_t + r_{t+1} dz_{t+1} is the gradient of key t; afterwards z is that of the state before the chunk.
    void of_delta_keys(int64_t m) {
        std::memcpy(dP, Z, C * D * sizeof(float));
        run_z(z.data(), dP, weights, m, D, true);
        for (int64_t i = 0; p.delta == delta_encoded && i < m; i++) add_scaled(dK + i * F, 1, dP + i * D, F);
    }
};

}  // namespace lrpe
