// The problem as Python passes it: lrpe/attention/engines/native/library.py mirrors this structure field by field.
#pragma once
#include <cstdint>

namespace lrpe {

enum Phi : int64_t { phi_identity = 0, phi_elu = 1, phi_relu = 2, phi_softplus = 3, phi_silu = 4 };
enum Lambda : int64_t { lambda_identity = 0, lambda_rotation = 1, lambda_unitary = 2, lambda_permutation = 3 };
enum Delta : int64_t { delta_none = 0, delta_plain = 1, delta_encoded = 2, delta_given = 3 };

// (batch, heads, n, width) floats whose last stride is 1; a stride of 0 repeats.
struct Tensor {
    float* p;
    int64_t batch, head, row;

    float* at(int64_t b, int64_t h, int64_t t) const { return p + b * batch + h * head + t * row; }
    Tensor reversed(int64_t n) const { return {p + (n - 1) * row, batch, head, -row}; }
};

}  // namespace lrpe

extern "C" struct lrpe_problem {
    int64_t batch, heads, key_heads, n, m;  // n queries and m keys; a causal sum has as many of both
    int64_t d, f, e, delta_width;  // widths of q and k, of their features, of values and of Δ's features
    int64_t phi, delta, divide, threads;
    double floor;  // is added to φ
    int64_t reflections, lambda;  // rows of V and U; Λ
    lrpe::Tensor q, k, v, delta_q, delta_k, turn, out;
    const double* log_decay;  // null if it is 0
    int64_t decay_batch, decay_head, decay_row;
    const uint8_t* mask;  // of keys, (batch, m); null if all tokens are real
    int64_t mask_batch, mask_row;
    const float *V, *U;                   // (reflections, d), d padded to a multiple of 16
    const float *S, *z;                   // before the first token, (batch, key heads, f, e) and (…, delta width), or null;
                                          // the sums over all keys, for the gradients of a sum without weights
    float *S_last, *z_last;               // after the last token, or null
    lrpe::Tensor total;                   // Δ, (batch, heads, n, 1)
    lrpe::Tensor g;                       // the gradient of out, and from here on what only backward has
    lrpe::Tensor g_total;                 // the gradient of Δ, or null
    const float *g_S, *g_z;               // the gradients of the last state, or null
    lrpe::Tensor dq, dk, dv, ddelta_q, ddelta_k;
    float* dturn;                         // of Type 1's table, one copy per thread, of dturn_size floats, or null
    int64_t dturn_batch, dturn_head, dturn_row, dturn_size;
    const double *phase, *alpha;          // (…, n, 1 or pairs) and (1 or key heads, pairs), which turn was made of
    int64_t phase_batch, phase_head, phase_row, phase_pair, alpha_head, pairs;
    double* dphase;                       // (batch, key heads, n, 1 or pairs), to be added to, or null
    int64_t dphase_batch, dphase_head, dphase_row;
    double* dalpha;                       // one copy per thread, of dalpha_size numbers, to be added to, or null
    int64_t dalpha_size;
    float *dV, *dU;                       // one copy per thread, or null
    float *dS, *dz;                       // or null
    double* dlog_decay;                   // (batch, key heads, n), or null
};
