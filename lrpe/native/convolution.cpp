// y_t = Σ_i w_i ⊙ x_{t + i - before}, one filter per channel; tokens outside the sequence are 0.
//
// With s = t + i - before the gradients are dx_s = Σ_i w_i ⊙ g_{s + before - i} and dw_i = Σ_t g_t ⊙ x_{t + i - before}.
// Each row is read from memory once: the ``kernel`` rows around it are still in the cache.
#include "convolution.h"

#include "threads.h"

namespace lrpe {

class Convolution {
    const lrpe_convolution& p;
    Scratch memory;
    const float* zeros;
    std::vector<const float*> rows;

public:
    explicit Convolution(const lrpe_convolution& p)
        : p(p), memory(p.channels), zeros(memory.take(p.channels)), rows(p.kernel) {}

    void forward(int64_t b, int64_t first, int64_t last) {
        for (int64_t t = first; t < last; t++) {
            for (int64_t i = 0; i < p.kernel; i++) rows[i] = input(b, t + i - p.before);
            weigh(p.y + (b * p.n + t) * p.channels);
        }
    }

    void backward(int64_t b, int64_t first, int64_t last, float* dw) {
        for (int64_t i = 0; i < p.kernel * p.channels && dw; i++) dw[i] = 0;
        if (first == 0 && p.dwindow)
            for (int64_t j = 0; j < p.before; j++) pull(b, j - p.before, p.dwindow + (b * p.before + j) * p.channels);
        for (int64_t t = first; t < last; t++) {
            if (p.dx) pull(b, t, p.dx + (b * p.n + t) * p.channels);
            for (int64_t i = 0; i < p.kernel && dw; i++)
                multiply_and_add(dw + i * p.channels, p.g.at(b, t), input(b, t + i - p.before));
        }
    }

private:
    const float* input(int64_t b, int64_t t) const {
        if (t >= 0) return t < p.n ? p.x.at(b, t) : zeros;
        return p.window.p ? p.window.at(b, t + p.before) : zeros;
    }

    // The gradient of the input at s.
    void pull(int64_t b, int64_t s, float* to) {
        for (int64_t i = 0; i < p.kernel; i++) {
            int64_t t = s + p.before - i;
            rows[i] = t >= 0 && t < p.n ? p.g.at(b, t) : zeros;
        }
        weigh(to);
    }

    // to = Σ_i w_i ⊙ rows_i
    void weigh(float* to) const {
        switch (p.kernel) {
            case 2: return weigh_by<2>(to);
            case 3: return weigh_by<3>(to);
            case 4: return weigh_by<4>(to);
            default: return weigh_by<0>(to);
        }
    }

    template <int K>
    void weigh_by(float* to) const {
        const int64_t kernel = K ? K : p.kernel, channels = p.channels;
        const float *w = p.w, *const* from = rows.data();
        int64_t c = 0;
        for (; c + W <= channels; c += W) {
            vec total{};
            for (int64_t i = 0; i < kernel; i++) total += load(w + i * channels + c) * load(from[i] + c);
            store(to + c, total);
        }
        for (; c < channels; c++) {
            float total = 0;
            for (int64_t i = 0; i < kernel; i++) total += w[i * channels + c] * from[i][c];
            to[c] = total;
        }
    }

    // to += x ⊙ y
    void multiply_and_add(float* to, const float* x, const float* y) const {
        int64_t c = 0;
        for (; c + W <= p.channels; c += W) store(to + c, load(to + c) + load(x + c) * load(y + c));
        for (; c < p.channels; c++) to[c] += x[c] * y[c];
    }
};

// Call work(convolution, row of the batch, first token, last token, piece) for every piece of every row.
template <class Work>
int for_each_piece(const lrpe_convolution* p, const Work& work) {
    constexpr int64_t SHARE = 1 << 18;  // with fewer numbers per thread, starting a thread costs more than it saves
    int64_t pieces = (p->n + p->piece - 1) / p->piece, useful = 1 + p->batch * p->n * p->channels / SHARE;
    return for_each_unit(
        p->batch * pieces, p->threads < useful ? p->threads : useful, [p](int64_t) { return Convolution(*p); },
        [p, pieces, &work](int64_t unit, Convolution& convolution) {
            int64_t first = unit % pieces * p->piece;
            work(convolution, unit / pieces, first, std::min(p->n, first + p->piece), unit);
        });
}

}  // namespace lrpe

extern "C" __attribute__((visibility("default"))) int lrpe_convolution_forward(const lrpe_convolution* p) {
    return lrpe::for_each_piece(p, [](lrpe::Convolution& convolution, int64_t b, int64_t first, int64_t last, int64_t) {
        convolution.forward(b, first, last);
    });
}

extern "C" __attribute__((visibility("default"))) int lrpe_convolution_backward(const lrpe_convolution* p) {
    return lrpe::for_each_piece(
        p, [p](lrpe::Convolution& convolution, int64_t b, int64_t first, int64_t last, int64_t piece) {
            convolution.backward(b, first, last, p->dw ? p->dw + piece * p->kernel * p->channels : nullptr);
        });
}

extern "C" __attribute__((visibility("default"))) int64_t lrpe_convolution_size() { return sizeof(lrpe_convolution); }
