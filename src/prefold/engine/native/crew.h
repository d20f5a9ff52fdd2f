// Threads that go through the phases of one call together.
//
// They are those of the OpenMP runtime that torch computes with, so that only one set of threads ever spins on the
// cores: `parallel` is that runtime's GOMP_parallel, found by whoever loads this library.
#pragma once

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>

namespace prefold {

struct OpenMP {
    void (*parallel)(void (*function)(void*), void* argument, unsigned threads, unsigned flags);
    int (*thread)();
    int (*threads)();
};

constexpr int SPINS = 2000;  // some 50 microseconds

class Crew {
   public:
    // Runs `work(crew, thread)` in up to `threads` threads at once; returns when all have ended. Nothing may be thrown.
    template <class Work>
    static void run(const OpenMP& openmp, int threads, Work work) {
        struct Call {
            Crew crew;
            const OpenMP& openmp;
            Work& work;
        } call{{}, openmp, work};
        openmp.parallel(
            [](void* argument) {
                Call& call = *static_cast<Call*>(argument);
                call.work(call.crew, call.openmp.thread(), call.openmp.threads());
            },
            &call, threads, 0);
    }

    // Each thread calls this in turn with the same arguments; `task(i)` runs once for each i below `count`. Nobody
    // returns before all tasks are done.
    template <class Task>
    void each(size_t count, int threads, Task task) {
        for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(i);
        wait(threads);
    }

   private:
    void wait(int threads) {
        const unsigned round = rounds.load(std::memory_order_acquire);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.store(0, std::memory_order_relaxed);
            next.store(0, std::memory_order_relaxed);
            rounds.store(round + 1);
            if (asleep.load()) syscall(SYS_futex, &rounds, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
            return;
        }
        // Spinning is what makes hundreds of phases a step affordable; but whoever is late may have no core: then
        // sleeping gives it this one, and makes this thread the first to run again.
        for (int spins = 0; spins < SPINS; spins++) {
            if (rounds.load(std::memory_order_acquire) != round) return;
            _mm_pause();
        }
        asleep.fetch_add(1);
        while (rounds.load() == round) syscall(SYS_futex, &rounds, FUTEX_WAIT_PRIVATE, round, nullptr, nullptr, 0);
        asleep.fetch_sub(1);
    }

    alignas(64) std::atomic<unsigned> asleep{0};
    alignas(64) std::atomic<size_t> next{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<unsigned> rounds{0};
};

}  // namespace prefold
