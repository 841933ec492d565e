// The problem of the tokens in reverse order, in the same memory: strides of rows are negative.
#pragma once
#include "problem.h"

namespace lrpe {

inline lrpe_problem reversed(const lrpe_problem& p) {
    lrpe_problem r = p;
    for (Tensor* x : {&r.q, &r.k, &r.v, &r.delta_q, &r.delta_k, &r.turn, &r.out, &r.total, &r.g, &r.g_total, &r.dq, &r.dk,
                      &r.dv, &r.ddelta_q, &r.ddelta_k})
        *x = x->reversed(p.n);
    if (p.mask) r.mask += (p.n - 1) * p.mask_row;
    r.mask_row = -p.mask_row;
    if (p.dturn) r.dturn += (p.n - 1) * p.dturn_row;
    r.dturn_row = -p.dturn_row;
    if (p.phase) r.phase += (p.n - 1) * p.phase_row;
    r.phase_row = -p.phase_row;
    if (p.dphase) r.dphase += (p.n - 1) * p.dphase_row;
    r.dphase_row = -p.dphase_row;
    // The step between two tokens belongs to the later one, so each log-decay moves to the token before; the last
    // token's, which comes first now, is not read.
    if (p.log_decay) r.log_decay += p.n * p.decay_row;
    r.decay_row = -p.decay_row;
    return r;
}

}  // namespace lrpe
