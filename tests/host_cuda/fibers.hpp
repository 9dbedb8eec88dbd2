// The threads of a block as fibers, which switch at barriers.
//
// Threads run to the next barrier one by one, alternately in forward and in reverse order, so that a
// missing barrier shows in whichever direction the data flows.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_on_host.hpp"
#include "sparse.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace host_cuda {

class Fibers {
public:
    // `body` is one thread of a kernel; it must not throw.
    Fibers(std::size_t threads, void (*body)()) : body_(body), fibers_(threads) {
        for (Fiber& fiber : fibers_) {
            // An inaccessible page below each stack turns an overflow into a crash.
            fiber.memory = sparse_memory(kStack + kPage);
            mprotect(fiber.memory.get(), kPage, PROT_NONE);
            fiber.stack = static_cast<char*>(fiber.memory.get()) + kPage;
        }
    }

    Fibers(const Fibers&) = delete;
    Fibers& operator=(const Fibers&) = delete;

    // False if threads diverge at a barrier: some wait there while others are done or wait elsewhere.
    bool run_block(unsigned block) {
        running = this;
        blockIdx = {block, 0, 0};
        for (Fiber& fiber : fibers_) start(fiber);
        for (unsigned round = block;; ++round) {
            for (std::size_t i = 0; i < fibers_.size(); ++i) {
                const std::size_t t = round % 2 ? fibers_.size() - 1 - i : i;
                threadIdx = {static_cast<unsigned>(t), 0, 0};
                enter(fibers_[t]);
            }
            const Fiber& first = fibers_.front();
            for (const Fiber& fiber : fibers_)
                if (fiber.done != first.done || (!first.done && fiber.barrier != first.barrier))
                    return false;
            if (first.done) return true;
        }
    }

    // Called by the running thread; `barrier` is the address in its code.
    void wait_at(const void* barrier) {
        current_->barrier = barrier;
        leave(false);
    }

    inline static Fibers* running = nullptr;

private:
    static constexpr std::size_t kStack = 128 << 10;

    struct Fiber {
        ucontext_t context;
        SparseMemory memory;
        char* stack;
        const void* barrier;  // at which the thread waits
        bool done;
    };

    void start(Fiber& fiber) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack;
        fiber.context.uc_stack.ss_size = kStack;
        fiber.context.uc_link = nullptr;
        fiber.done = false;
        fiber.barrier = nullptr;
        makecontext(&fiber.context, thread_main, 0);
    }

    static void thread_main() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, &running->scheduler_stack_,
                                        &running->scheduler_stack_bytes_);
#endif
        running->body_();
        running->current_->done = true;
        running->leave(true);
    }

    void enter(Fiber& fiber) {
        current_ = &fiber;
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&scheduler_fake_stack_, fiber.stack, kStack);
#endif
        swapcontext(&scheduler_, &fiber.context);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
    }

    void leave(bool for_ever) {
#if defined(__SANITIZE_ADDRESS__)
        void* fake_stack = nullptr;
        __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack, scheduler_stack_,
                                       scheduler_stack_bytes_);
#endif
        (void)for_ever;
        swapcontext(&current_->context, &scheduler_);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
    }

    void (*body_)();
    std::vector<Fiber> fibers_;
    ucontext_t scheduler_;
    Fiber* current_ = nullptr;
    void* scheduler_fake_stack_ = nullptr;
    const void* scheduler_stack_ = nullptr;
    std::size_t scheduler_stack_bytes_ = 0;
};

}  // namespace host_cuda
