// One token: S ← r S + k vᵀ, z ← r z + k', o = q S / Δ for every head of a layer, with φ, P and Λ inside.
#include "step.h"

#include "decay.h"
#include "threads.h"

namespace lrpe {

struct Step {
    const lrpe_step& p;
    int64_t F, D;  // padded widths of features and of Δ's features
    Scratch memory;
    float *mirrors, *pushes;  // the rows of V, padded, and 2 / |v|² of each
    float *turn;              // cos and sin of each angle; (1, 0) for features that stay
    float *plain, *encoded;   // the features of one row
    float *delta;             // Δ's features of one row
    int64_t turned_row = -1, turned_head = -1;  // what the turn is for

    static size_t floats(const lrpe_step& p) {
        return (p.reflections + 3) * padded(p.f) + p.reflections + padded(p.delta_width) + 16 * 6;
    }

    explicit Step(const lrpe_step& step)
        : p(step), F(padded(p.f)), D(padded(p.delta_width)), memory(floats(step)) {
        mirrors = memory.take(p.reflections * F), pushes = memory.take(p.reflections);
        turn = memory.take(F), plain = memory.take(F), encoded = memory.take(F), delta = memory.take(D);
        for (int64_t r = 0; r < p.reflections; r++) {
            copy_row(mirrors + r * F, p.V + r * p.f, p.f);
            pushes[r] = 2 / dot(mirrors + r * F, mirrors + r * F, F);
        }
    }

    void operator()(int64_t unit) {
        int64_t b = unit / p.key_heads, h = unit % p.key_heads, group = p.heads / p.key_heads;
        float carry = p.log_decay ? (float)std::exp(p.log_decay[b * p.decay_batch + h * p.decay_head]) : 1.0f;
        bool real = !p.mask || p.mask[b];
        find_turn(b, h);
        read(p.k + unit * p.f, p.delta_k ? p.delta_k + unit * p.delta_width : nullptr);
        next_state(unit, real, carry);
        for (int64_t head = b * p.heads + h * group, last = head + group; head < last; head++) {
            read(p.q + head * p.f, p.delta_q ? p.delta_q + head * p.delta_width : nullptr);
            query(unit, head);
        }
    }

    // The cosines and sines of position · α or phase · α, in double; heads and rows that share them compute them once.
    void find_turn(int64_t b, int64_t h) {
        int64_t row = (p.phase ? p.phase_batch : p.position_batch) ? b : 0;
        int64_t head = p.alpha_head || (p.phase && p.phase_head) ? h : 0;
        if (!p.pairs || (row == turned_row && head == turned_head)) return;
        turned_row = row, turned_head = head;
        const double* alpha = p.alpha + h * p.alpha_head;
        const float* log_alpha = p.log_alpha ? p.log_alpha + h * p.alpha_head : nullptr;
        const double* phase = p.phase ? p.phase + b * p.phase_batch + h * p.phase_head : nullptr;
        double position = p.position ? (double)p.position[b * p.position_batch] : 0;
        for (int64_t i = 0; i < p.pairs; i++) {
            double angle = (phase ? phase[i * p.phase_pair] : position) * alpha[i];
            if (log_alpha) angle *= std::exp((double)log_alpha[i]);
            turn[2 * i] = (float)std::cos(angle), turn[2 * i + 1] = (float)std::sin(angle);
        }
        for (int64_t j = 2 * p.pairs; j < F; j++) turn[j] = j % 2 ? 0.0f : 1.0f;
    }

    // φ(x) into plain, Λ P φ(x) into encoded, and those that Δ sums into delta; all are 0 beyond their width.
    void read(const float* x, const float* of_delta) {
        copy_row(plain, x, p.f);
        Row<0> features(plain, F);
        map(features, p.phi, (float)p.floor);
        for (int64_t j = p.f; j < F; j++) plain[j] = 0;
        copy_row(encoded, plain, F);
        for (int64_t r = p.reflections - 1; r >= 0; r--) {
            const float* mirror = mirrors + r * F;
            add_scaled(encoded, -pushes[r] * dot(mirror, encoded, F), mirror, F);
        }
        for (int64_t j = 0; j < F && p.pairs; j += W) store(encoded + j, times(load(encoded + j), load(turn + j)));
        if (p.delta) copy_row(delta, of_delta ? of_delta : p.delta == delta_plain ? plain : encoded, p.delta_width);
    }

    // A carry of 0 forgets the state, even NaN; a row without a token adds nothing, even if its value is NaN.
    void next_state(int64_t unit, bool real, float carry) {
        const float *S = p.S + unit * p.f * p.e, *v = p.v + unit * p.e;
        float* next = p.S_next + unit * p.f * p.e;
        for (int64_t i = 0; i < p.f; i++)
            fade_and_add(next + i * p.e, S + i * p.e, carry, v, real ? encoded[i] : 0, real, p.e);
        if (!p.delta) return;
        const float* z = p.z + unit * p.delta_width;
        fade_and_add(p.z_next + unit * p.delta_width, z, carry, delta, 1, real, p.delta_width);
    }

    // to = carry · from + scale · added
    static void fade_and_add(float* to, const float* from, float carry, const float* added, float scale, bool adds,
                             int64_t width) {
        int64_t j = 0;
        for (; j + W <= width; j += W) {
            vec x = carry == 0 ? vec{} : load(from + j) * splat(carry);
            store(to + j, adds ? x + splat(scale) * load(added + j) : x);
        }
        for (; j < width; j++) {
            float x = carry == 0 ? 0 : from[j] * carry;
            to[j] = adds ? x + scale * added[j] : x;
        }
    }

    void query(int64_t unit, int64_t head) {
        const float* S = p.S_next + unit * p.f * p.e;
        float *out = p.out + head * p.e, scale = 1;
        if (p.delta) {
            float total = 0;
            const float* z = p.z_next + unit * p.delta_width;
            int64_t j = 0;
            vec sums{};
            for (; j + W <= p.delta_width; j += W) sums += load(delta + j) * load(z + j);
            for (; j < p.delta_width; j++) total += delta[j] * z[j];
            total += sum(sums);
            p.total[head] = total;
            if (p.divide) scale = inverse(total);
        }
        int64_t j = 0;
        for (; j + 4 * W <= p.e; j += 4 * W) columns<4>(S + j, out + j, scale);
        for (; j + W <= p.e; j += W) columns<1>(S + j, out + j, scale);
        for (; j < p.e; j++) {
            float one = 0;
            for (int64_t i = 0; i < p.f; i++) one += encoded[i] * S[i * p.e + j];
            out[j] = one * scale;
        }
    }

    // N vectors of o = scale · q S
    template <int N>
    void columns(const float* S, float* out, float scale) const {
        vec sums[N] = {};
        for (int64_t i = 0; i < p.f; i++)
            for (int n = 0; n < N; n++) sums[n] += splat(encoded[i]) * load(S + i * p.e + n * W);
        for (int n = 0; n < N; n++) store(out + n * W, sums[n] * splat(scale));
    }
};

}  // namespace lrpe

extern "C" __attribute__((visibility("default"))) int lrpe_step_forward(const lrpe_step* p) {
    constexpr int64_t SHARE = 1 << 18;  // numbers of the state that are worth a thread: it takes as long to start one
    int64_t units = p->batch * p->key_heads, useful = 1 + units * p->f * p->e / SHARE;
    return lrpe::for_each_unit(
        units, p->threads < useful ? p->threads : useful, [p](int64_t) { return lrpe::Step(*p); },
        [](int64_t unit, lrpe::Step& step) { step(unit); });
}

extern "C" __attribute__((visibility("default"))) int64_t lrpe_step_size() { return sizeof(lrpe_step); }
