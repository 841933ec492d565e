// The causal sum and its gradients, one sweep over the tokens per key head.
#include "causal_backward.h"
#include "causal_forward.h"

extern "C" __attribute__((visibility("default"))) int lrpe_causal_forward(const lrpe_problem* p) {
    using lrpe::CausalForward;
    return lrpe::for_each_unit(
        p->batch * p->key_heads, p->threads,
        [p](int64_t) { return CausalForward(*p, lrpe::Sees::own_and_earlier); },
        [](int64_t unit, CausalForward& forward) { forward(unit); });
}

extern "C" __attribute__((visibility("default"))) int lrpe_causal_backward(const lrpe_problem* p) {
    using lrpe::CausalBackward;
    return lrpe::for_each_unit(
        p->batch * p->key_heads, p->threads,
        [p](int64_t thread) { return CausalBackward(*p, thread, lrpe::Sees::own_and_earlier); },
        [](int64_t unit, CausalBackward& backward) { backward(unit); });
}

extern "C" __attribute__((visibility("default"))) int64_t lrpe_problem_size() { return sizeof(lrpe_problem); }
