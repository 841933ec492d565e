// The gradients of the phases p and the angles α of Type 2's rotations by θ = p α. For a feature E = y e^{iθ} and its
// gradient g, dθ = Im(g Ē) = g_im E_re - g_re E_im.
//
// dα = Σ p dθ. Turning all queries and keys alike changes no score, so Σ dθ is 0 and p may be counted from any origin:
// counted from 0 at positions around 10⁶, the rounding errors of dθ would be multiplied by 10⁶. Only a state before the
// first token, or a gradient of the one after the last, has features that do not turn along.
#pragma once
#include "lambda.h"
#include "problem.h"
#include "row.h"
#include "threads.h"

namespace lrpe {

struct AngleGradients {
    const lrpe_problem& p;
    int64_t width;
    float *alpha;            // each angle twice, for the two features of a pair
    float *sums, *moments;   // Σ dθ and Σ (p_t - p_first) dθ of a chunk, in two parts per pair
    float* parts;            // dθ of one row, likewise
    double *dphase, *dalpha;
    const bool relative;  // whether p is counted from the first token's
    double first = 0;     // p of the chunk's first token, so counted
    int64_t batch = 0, head = 0, token = 0;

    static size_t floats(const lrpe_problem& p) { return 4 * padded(p.d); }

    AngleGradients(const lrpe_problem& problem, Scratch& memory, int64_t thread, bool relative)
        : p(problem), width(padded(p.d)), relative(relative) {
        alpha = memory.take(width), sums = memory.take(width), moments = memory.take(width), parts = memory.take(width);
        dphase = p.dphase;
        dalpha = p.dalpha ? p.dalpha + thread * p.dalpha_size : nullptr;
    }

    bool wanted() const { return dphase || dalpha; }

    const double* phase_of(int64_t t) const {
        return p.phase + batch * p.phase_batch + head * p.phase_head + t * p.phase_row;
    }

    // p of token i of the chunk, for pair c.
    double phase(int64_t i, int64_t c = 0) const {
        double origin = relative ? phase_of(0)[c * p.phase_pair] : 0;
        return phase_of(token + i)[c * p.phase_pair] - origin;
    }

    void start(int64_t b, int64_t h, int64_t t) {
        batch = b, head = h, token = t;
        if (!wanted()) return;
        first = phase(0);
        for (int64_t c = 0; c < p.pairs; c++) alpha[2 * c] = alpha[2 * c + 1] = (float)p.alpha[h * p.alpha_head + c];
    }

    // Count a row of gradients g of the features E of token i of the chunk.
    template <int N>
    void add(Row<N>& g, const float* E, int64_t i) {
        vec along{}, apart = splat((float)(phase(i) - first));
        g.each([&](int64_t j) {
            vec part = Pairs::swap(g[j]) * load(E + j * W) * -Pairs::sign();
            along += part * load(alpha + j * W);
            store(sums + j * W, load(sums + j * W) + part);
            store(moments + j * W, load(moments + j * W) + part * apart);
            if (p.phase_pair) store(parts + j * W, part);
        });
        if (p.phase_pair)
            add_each(i);
        else if (dphase)
            *at(i) += sum(along);
    }

    // The same if each pair has a phase of its own.
    void add_each(int64_t i) {
        double* dalpha_head = dalpha ? dalpha + head * p.alpha_head : nullptr;
        for (int64_t c = 0; c < p.pairs; c++) {
            double dtheta = parts[2 * c] + parts[2 * c + 1];
            if (dphase) at(i)[c] += dtheta * p.alpha[head * p.alpha_head + c];
            if (dalpha) dalpha_head[c] += dtheta * phase(i, c);
        }
    }

    double* at(int64_t i) const {
        return dphase + batch * p.dphase_batch + head * p.dphase_head + (token + i) * p.dphase_row;
    }

    void finish() {
        if (!wanted()) return;
        for (int64_t c = 0; dalpha && !p.phase_pair && c < p.pairs; c++)
            dalpha[head * p.alpha_head + c] += first * ((double)sums[2 * c] + sums[2 * c + 1]) + moments[2 * c] + moments[2 * c + 1];
        std::memset(sums, 0, width * sizeof(float)), std::memset(moments, 0, width * sizeof(float));
    }
};

}  // namespace lrpe
