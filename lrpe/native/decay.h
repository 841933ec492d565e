// The weights of a chunk. c_i is the log-decay summed from the chunk's first token on, in double.
#pragma once
#include "features.h"

namespace lrpe {

// Which keys a sweep counts: a causal sum a query's own and the earlier ones. A bidirectional sum with weights takes two
// sweeps, and the second, from the last token to the first, must not count the own key again.
enum class Sees { own_and_earlier, earlier };

struct Weights {
    const Sees sees;
    float *inside;          // C × C: exp(c_i - c_j) for the keys j that i sees, else 0
    float *before, *after;  // exp(c_i), from the state before the chunk; exp(c_last - c_i), to the state after it
    float *step;            // exp(log-decay of token i)
    float carry = 1;        // exp(c_last)
    double exact_carry = 1;
    int64_t known = 0;      // the tokens of the chunk that the weights are for, if chunks of equal length share them

    Weights(Scratch& memory, Sees sees)
        : sees(sees), inside(memory.take(C * C)), before(memory.take(C)), after(memory.take(C)), step(memory.take(C)) {}

    static size_t floats() { return C * C + 4 * C; }

    // For the m tokens from t on. Tokens beyond the last do not decay.
    void read(const lrpe_problem& p, int64_t b, int64_t h, int64_t t, int64_t m) {
        bool shared = !p.log_decay || p.decay_row == 0;
        if (shared && known == m) return;
        known = shared ? m : 0;
        double steps[C], c[C], left[C], total = 0;
        const double* log_r = p.log_decay ? p.log_decay + b * p.decay_batch + h * p.decay_head : nullptr;
        for (int64_t i = 0; i < C; i++) {
            bool first = !shared && t + i == 0 && !p.S;  // nothing is before it that could decay
            steps[i] = log_r && i < m && !first ? log_r[(t + i) * p.decay_row] : 0.0;
            c[i] = total += steps[i];
        }
        for (int64_t i = 0; i < C; i++) left[i] = total - c[i];
        exponentials(step, steps, C);
        exponentials(before, c, C);
        exponentials(after, left, C);
        exact_carry = std::exp(total);
        carry = (float)exact_carry;
        for (int64_t i = 0; i < C; i++) fill_row(c, i);
    }

    // exp(high + low) = exp(high) (1 + low): a float alone has too few digits for a large x.
    static void exponentials(float* to, const double* x, int64_t count) {
        float high[C], low[C];
        for (int64_t j = 0; j < count; j++) {
            high[j] = (float)x[j];
            low[j] = (float)(x[j] - high[j]);
        }
        for (int64_t j = 0; j < count; j += W) {
            vec w = exp(load(high + j));
            store(to + j, w + w * load(low + j));
        }
    }

    // The rest of the row is 0 from the start.
    void fill_row(const double* c, int64_t i) {
        double apart[C];
        int64_t seen = sees == Sees::own_and_earlier ? i + 1 : i, width = padded(seen);
        for (int64_t j = 0; j < width; j++) apart[j] = c[i] - c[j];
        exponentials(inside + i * C, apart, width);
        for (int64_t j = seen; j < width; j++) inside[i * C + j] = 0;
    }

    // A ∘ inside; where the weight is 0 the product is 0, whatever A holds.
    void apply(float* A) const {
        for (int64_t j = 0; j < C * C; j += W) {
            vec w = load(inside + j);
            store(A + j, w == vec{} ? vec{} : load(A + j) * w);
        }
    }
};

// Δ's sums over a chunk: row i becomes Σ w x over the rows up to i of the chunk that it sees (from i on, if backwards), plus
// the state z that enters it, faded to row i. The chunk is summed by itself first, and z is carried in double: added to one by one,
// a sum over a long text would lose digits.
inline void run_z(double* z, float* rows, const Weights& weights, int64_t m, int64_t width, bool backwards) {
    const float* fade = backwards ? weights.after : weights.before;
    const float* leave = backwards ? weights.before : weights.after;
    for (int64_t j = 0; j < width; j += W) {
        vec running{}, total{}, entering;
        for (int l = 0; l < W; l++) entering[l] = (float)z[j + l];
        for (int64_t s = 0; s < m; s++) {
            int64_t i = backwards ? m - 1 - s : s, last = backwards ? i + 1 : i;
            float step = s == 0 ? 0 : weights.step[last];
            vec x = load(rows + i * width + j);
            vec others = step == 0 ? vec{} : running * splat(step);
            running = x + others;
            total += leave[i] == 0 ? vec{} : x * splat(leave[i]);
            vec seen = weights.sees == Sees::own_and_earlier ? running : others;
            store(rows + i * width + j, seen + (fade[i] == 0 ? vec{} : entering * splat(fade[i])));
        }
        for (int l = 0; l < W; l++) z[j + l] = (weights.carry == 0 ? 0 : z[j + l] * weights.exact_carry) + total[l];
    }
}

// z += Σ of the rows of a chunk, which is summed by itself first, for the same reason.
inline void add_to_z(double* z, const float* rows, int64_t m, int64_t width) {
    for (int64_t j = 0; j < width; j += W) {
        vec total{};
        for (int64_t i = 0; i < m; i++) total += load(rows + i * width + j);
        for (int l = 0; l < W; l++) z[j + l] += total[l];
    }
}

inline void start_z(double* z, const float* from, int64_t width, int64_t padded_width) {
    for (int64_t j = 0; j < padded_width; j++) z[j] = from && j < width ? from[j] : 0;
}

inline void finish_z(const double* z, float* to, int64_t width) {
    for (int64_t j = 0; to && j < width; j++) to[j] = (float)z[j];
}

// Whether 1 / Δ would not be finite.
inline bool is_tiny(float delta) { return std::fabs(delta) < 1.17549435e-38f; }

// 1 / Δ, and 0 for Δ = 0, bounded as lrpe/attention/normalizer.py has it.
inline float inverse(float delta) {
    if (delta != delta) return delta;
    if (delta == 0) return 0;
    return (delta > 0 ? 1.0f : -1.0f) / (is_tiny(delta) ? 1.17549435e-38f : std::fabs(delta));
}

}  // namespace lrpe
