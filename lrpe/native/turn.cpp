// cos and sin of p α, the table of Type 2's rotations, in double until they are rounded.
#include "turn.h"

#include "threads.h"

namespace lrpe {

constexpr int L = W / 2;  // doubles per vector
typedef double dvec __attribute__((vector_size(4 * W), aligned(8), may_alias));
typedef int64_t lvec __attribute__((vector_size(4 * W), aligned(8), may_alias));

inline dvec fill(double x) { return x - dvec{}; }
inline dvec load(const double* p) { return *reinterpret_cast<const dvec*>(p); }
inline dvec flip(dvec x, lvec bit) { return (dvec)((lvec)x ^ (bit << 62)); }  // the sign of x where bit is 2

// n π/2 of a larger angle would be rounded by more than 1e-8 where product and sum are not one operation.
constexpr double FAR = 1e8;

// (cos a, sin a) to 1e-8, in neighbouring floats: a = n π/2 + r with |r| ≤ π/4, and two polynomials of r.
inline void write_turns(dvec a, float* to) {
    const dvec magic = fill(6755399441055744.0);  // 1.5 · 2^52: adding it rounds to a whole number
    dvec shifted = a * fill(0.63661977236758134308) + magic, n = shifted - magic;
    dvec r = a - n * fill(1.5707963267948965580) - n * fill(6.123233995736766036e-17), r2 = r * r;
    dvec s = (fill(-1.0 / 5040) + r2 * fill(1.0 / 362880)) * r2 + fill(1.0 / 120);
    s = r + r * r2 * (s * r2 + fill(-1.0 / 6));
    dvec c = (fill(1.0 / 40320) + r2 * fill(-1.0 / 3628800)) * r2 + fill(-1.0 / 720);
    c = fill(1.0) + r2 * ((c * r2 + fill(1.0 / 24)) * r2 + fill(-0.5));
    lvec quadrant = (lvec)shifted, odd = (quadrant & 1) != 0;
    dvec cosine = flip(odd ? s : c, (quadrant + 1) & 2), sine = flip(odd ? c : s, quadrant & 2);
    for (int i = 0; i < L; i++) to[2 * i] = (float)cosine[i], to[2 * i + 1] = (float)sine[i];
}

// The same for angles that are FAR: polynomials of a wrong r have no bound.
inline void write_far_turns(dvec a, float* to) {
    for (int i = 0; i < L; i++) to[2 * i] = (float)std::cos(a[i]), to[2 * i + 1] = (float)std::sin(a[i]);
}

inline double largest(const double* x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = std::max(most, std::fabs(x[i]));
    return most;
}

struct Pairs {  // of one thread: α of its head, the phases of a row, and the largest |α|
    std::vector<double> alpha, phases;
    double top = 0;
};

inline void write_row(const lrpe_turns& p, int64_t b, int64_t h, int64_t t, Pairs& own, float* to) {
    const double *phase = p.phase + b * p.phase_batch + h * p.phase_head + t * p.phase_row, *alpha = own.alpha.data();
    double* phases = own.phases.data();
    for (int64_t i = 0; p.phase_pair && i < p.pairs; i++) phases[i] = phase[i * p.phase_pair];
    bool far = (p.phase_pair ? largest(phases, p.pairs) : std::fabs(*phase)) * own.top > FAR;
    for (int64_t i = 0; i < p.width / 2; i += L) {
        dvec angles = (p.phase_pair ? load(phases + i) : fill(*phase)) * load(alpha + i);
        far ? write_far_turns(angles, to + 2 * i) : write_turns(angles, to + 2 * i);
    }
}

}  // namespace lrpe

extern "C" __attribute__((visibility("default"))) int lrpe_turns_forward(const lrpe_turns* p) {
    constexpr int64_t PIECE = 256;  // rows that a thread takes at a time
    int64_t pieces = (p->n + PIECE - 1) / PIECE;
    return lrpe::for_each_unit(
        p->batch * p->heads * pieces, p->threads,
        [p](int64_t) { return lrpe::Pairs{std::vector<double>(p->width / 2), std::vector<double>(p->width / 2)}; },
        [p, pieces](int64_t unit, lrpe::Pairs& own) {
            int64_t row = unit / pieces, b = row / p->heads, h = row % p->heads, first = unit % pieces * PIECE;
            std::copy_n(p->alpha + h * p->alpha_head, p->pairs, own.alpha.begin());
            own.top = lrpe::largest(own.alpha.data(), p->pairs);
            for (int64_t t = first; t < p->n && t < first + PIECE; t++)
                lrpe::write_row(*p, b, h, t, own, p->to + (row * p->n + t) * p->width);
        });
}

extern "C" __attribute__((visibility("default"))) int64_t lrpe_turns_size() { return sizeof(lrpe_turns); }
