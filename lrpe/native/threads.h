// Units of work, such as a head of a row of the batch, which threads take one by one.
#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "vectors.h"

namespace lrpe {

// Memory of a thread, 0 at first, in pieces aligned to a cache line.
class Scratch {
    std::vector<float> memory;
    size_t used = 0;

public:
    explicit Scratch(size_t floats) : memory(floats + 16 * 64) {
        used = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
    }
    float* take(int64_t floats) {
        float* piece = memory.data() + used;
        used += (floats + 15) / 16 * 16;
        return piece;
    }
};

// Call work(unit, worker) for every unit, where worker makes the thread's own memory. Returns 0, or 1 without memory.
template <class Worker, class Work>
int for_each_unit(int64_t units, int64_t threads, const Worker& make, const Work& work) {
    std::atomic<int64_t> next{0};
    std::atomic<int> failed{0};
    auto run = [&](int64_t number) noexcept {
        FlushDenormals flush;
        try {
            auto worker = make(number);
            for (int64_t unit; (unit = next++) < units;) work(unit, worker);
        } catch (const std::exception&) {
            failed = 1;
        }
    };
    std::vector<std::thread> others;
    try {
        for (int64_t i = 1; i < (threads < units ? threads : units); i++) others.emplace_back(run, i);
    } catch (const std::system_error&) {
        // The system has no more threads; those that are there do the work.
    }
    run(0);
    for (auto& thread : others) thread.join();
    return failed;
}

}  // namespace lrpe
