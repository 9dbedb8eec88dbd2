// The copies of a split, on the caller's thread and on helpers that share its work.
//
// native.py writes a plan, which says what is copied but not where: in 64-bit integers, whose products
// Python has checked. A *nest* is a loop nest over runs of contiguous bytes, from the input to one
// output. Nests of neighbouring outputs that read the same rows are a *group*. A *task* is `step`
// items (runs) of each nest of a group: some 64 KiB, which one thread copies.

#define _GNU_SOURCE  // pthread_sigmask and clock_gettime under -std=c11
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

_Static_assert(sizeof(void *) == sizeof(int64_t), "calls hold addresses as 64-bit integers");

enum {
    LINE = 64,            // bytes of a cache line
    STREAMED_RUN = 512,   // bytes; shorter runs are streamed only where they follow one another
    MOST_OUTS = 16,       // of a kernel
    MOST_LOOPS = 65,      // of a nest, as in plan.py
    SPINS = 1 << 13,      // 120 to 400 us; a call from Python spends 20 us
    STACK = 1 << 20,      // its pages are touched only when used; the C library keeps TLS in it too
    SERIES_NS = 1000000,  // after a split so recent, more may follow
};

struct loop { int64_t size, src, dst; };  // iterations, and bytes from one to the next
struct nest { int64_t output, src, dst, run, first_loop, loops; };  // `src`, `dst`: where it begins
struct group { int64_t first_task, items, step, first_nest, nests, kernel; };
struct plan { int64_t groups, nests, streams; };  // then its groups, nests and loops
struct call {  // some tasks of a plan between these addresses
    const struct plan *plan;
    const char *src;
    int64_t first, end, threads, wakes;
    char *outs[];
};

// -- Rows of a few narrow elements --------------------------------------------------------------------

typedef uint8_t u8;
typedef uint16_t u16 __attribute__((aligned(1), may_alias));
typedef uint32_t u32 __attribute__((aligned(1), may_alias));
typedef uint64_t u64 __attribute__((aligned(1), may_alias));
typedef uint64_t u128 __attribute__((vector_size(16), aligned(1), may_alias));
typedef void kernel(const void *in, char *const *outs, int64_t rows);

// One function for each form, such as 1 + 3, each size of its elements and each kind of processor: one
// pass over the rows, which the compiler vectorises, because no two pointers alias and all distances are
// constants.
#define KERNEL(NAME, T, KIND, BODY) \
    KIND __attribute__((noinline)) static void NAME##_##T##_rows_##KIND( \
        const T *restrict in, T *restrict a, T *restrict b, T *restrict c, T *restrict d, \
        T *restrict e, T *restrict f, T *restrict g, T *restrict h, T *restrict i, T *restrict j, \
        T *restrict k, T *restrict l, T *restrict m, T *restrict n, T *restrict o, T *restrict p, \
        int64_t rows \
    ) { \
        (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j; \
        (void)k, (void)l, (void)m, (void)n, (void)o, (void)p; \
        for (int64_t r = 0; r < rows; r++) { BODY } \
    } \
    static void NAME##_##T##_##KIND(const void *in, char *const *to, int64_t rows) { \
        T *o[MOST_OUTS]; \
        for (int i = 0; i < MOST_OUTS; i++) o[i] = (T *)to[i]; \
        NAME##_##T##_rows_##KIND(in, o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], \
            o[10], o[11], o[12], o[13], o[14], o[15], rows); \
    }
#if defined(__x86_64__)
#define PLAIN
#define AVX2 __attribute__((target("avx2")))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))
#define EACH_KIND(NAME, T, BODY) \
    KERNEL(NAME, T, PLAIN, BODY) KERNEL(NAME, T, AVX2, BODY) KERNEL(NAME, T, VBMI, BODY)
#define KINDS(NAME) {NAME##_PLAIN, NAME##_AVX2, NAME##_VBMI}
static int kind_of_processor(void) {
    bool is_wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
    return is_wide ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
}
#else
#define PLAIN
#define EACH_KIND(NAME, T, BODY) KERNEL(NAME, T, PLAIN, BODY)
#define KINDS(NAME) {NAME##_PLAIN}
static int kind_of_processor(void) { return 0; }
#endif
#define KERNELS(NAME, BODY) \
    EACH_KIND(NAME, u8, BODY) EACH_KIND(NAME, u16, BODY) EACH_KIND(NAME, u32, BODY) \
    EACH_KIND(NAME, u64, BODY) EACH_KIND(NAME, u128, BODY)
KERNELS(k11, a[r] = in[2 * r]; b[r] = in[2 * r + 1];)
KERNELS(k12, a[r] = in[3 * r]; b[2 * r] = in[3 * r + 1]; b[2 * r + 1] = in[3 * r + 2];)
KERNELS(k21, a[2 * r] = in[3 * r]; a[2 * r + 1] = in[3 * r + 1]; b[r] = in[3 * r + 2];)
KERNELS(k13, a[r] = in[4 * r]; b[3 * r] = in[4 * r + 1]; b[3 * r + 1] = in[4 * r + 2];
    b[3 * r + 2] = in[4 * r + 3];)
KERNELS(k31, a[3 * r] = in[4 * r]; a[3 * r + 1] = in[4 * r + 1]; a[3 * r + 2] = in[4 * r + 2];
    b[r] = in[4 * r + 3];)
KERNELS(k111, a[r] = in[3 * r]; b[r] = in[3 * r + 1]; c[r] = in[3 * r + 2];)
KERNELS(k1111, a[r] = in[4 * r]; b[r] = in[4 * r + 1]; c[r] = in[4 * r + 2]; d[r] = in[4 * r + 3];)
KERNELS(k5, a[r] = in[5 * r]; b[r] = in[5 * r + 1]; c[r] = in[5 * r + 2]; d[r] = in[5 * r + 3];
    e[r] = in[5 * r + 4];)
KERNELS(k6, a[r] = in[6 * r]; b[r] = in[6 * r + 1]; c[r] = in[6 * r + 2]; d[r] = in[6 * r + 3];
    e[r] = in[6 * r + 4]; f[r] = in[6 * r + 5];)
KERNELS(k7, a[r] = in[7 * r]; b[r] = in[7 * r + 1]; c[r] = in[7 * r + 2]; d[r] = in[7 * r + 3];
    e[r] = in[7 * r + 4]; f[r] = in[7 * r + 5]; g[r] = in[7 * r + 6];)
KERNELS(k8, a[r] = in[8 * r]; b[r] = in[8 * r + 1]; c[r] = in[8 * r + 2]; d[r] = in[8 * r + 3];
    e[r] = in[8 * r + 4]; f[r] = in[8 * r + 5]; g[r] = in[8 * r + 6]; h[r] = in[8 * r + 7];)
KERNELS(k16, a[r] = in[16 * r]; b[r] = in[16 * r + 1]; c[r] = in[16 * r + 2]; d[r] = in[16 * r + 3];
    e[r] = in[16 * r + 4]; f[r] = in[16 * r + 5]; g[r] = in[16 * r + 6]; h[r] = in[16 * r + 7];
    i[r] = in[16 * r + 8]; j[r] = in[16 * r + 9]; k[r] = in[16 * r + 10]; l[r] = in[16 * r + 11];
    m[r] = in[16 * r + 12]; n[r] = in[16 * r + 13]; o[r] = in[16 * r + 14]; p[r] = in[16 * r + 15];)

#define SIZES(NAME) \
    {KINDS(NAME##_u8), KINDS(NAME##_u16), KINDS(NAME##_u32), KINDS(NAME##_u64), KINDS(NAME##_u128)}
static const struct { const char *form; kernel *of[5][3]; } kernels[] = {
    {"1+1", SIZES(k11)}, {"1+2", SIZES(k12)}, {"2+1", SIZES(k21)}, {"1+3", SIZES(k13)},
    {"3+1", SIZES(k31)}, {"1+1+1", SIZES(k111)}, {"1+1+1+1", SIZES(k1111)},
    {"1+1+1+1+1", SIZES(k5)}, {"1+1+1+1+1+1", SIZES(k6)}, {"1+1+1+1+1+1+1", SIZES(k7)},
    {"1+1+1+1+1+1+1+1", SIZES(k8)}, {"1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1", SIZES(k16)},
};

// The number of the kernel for rows of this form, of elements of 1 << size bytes; -1 if none. It is for
// this processor, or of kind `most` if that is simpler.
int64_t dmlsplit_kernel(const char *form, int64_t size, int64_t most) {
    int64_t own = kind_of_processor(), kind = own < most ? own : most;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (size >= 0 && size < 5 && strcmp(form, kernels[i].form) == 0)
            return ((int64_t)i * 5 + size) * 3 + kind;
    return -1;
}

// -- Runs --------------------------------------------------------------------------------------------

// A run of more than a line, line by line: the last one overlaps the one before. memcpy would use
// `rep movsb`, which takes twice the time on some processors.
typedef uint64_t one_line __attribute__((vector_size(LINE), aligned(1), may_alias));
#define COPY_RUN(NAME, KIND) \
    KIND static void NAME(char *dst, const char *src, int64_t bytes) { \
        for (int64_t at = 0; at < bytes - LINE; at += LINE) \
            *(one_line *)(dst + at) = *(const one_line *)(src + at); \
        *(one_line *)(dst + bytes - LINE) = *(const one_line *)(src + bytes - LINE); \
    }
COPY_RUN(copy_run_PLAIN, PLAIN)

// Whole lines with non-temporal stores. They do not read the output first, as a store into the cache
// does, but leave it in memory: for outputs that do not fit the cache.
#if defined(__x86_64__)
COPY_RUN(copy_run_AVX2, AVX2)
COPY_RUN(copy_run_AVX512, __attribute__((target("avx512f"))))

static void copy_run(char *dst, const char *src, int64_t bytes) {
    if (__builtin_cpu_supports("avx512f")) copy_run_AVX512(dst, src, bytes);
    else if (__builtin_cpu_supports("avx2")) copy_run_AVX2(dst, src, bytes);
    else copy_run_PLAIN(dst, src, bytes);
}

__attribute__((target("avx512f"))) static void stream_512(char *dst, const char *src, int64_t lines) {
    for (; lines > 0; lines--, dst += LINE, src += LINE)
        _mm512_stream_si512((void *)dst, _mm512_loadu_si512(src));
}

static void stream_128(char *dst, const char *src, int64_t lines) {
    for (; lines > 0; lines--, dst += LINE, src += LINE)
        for (int i = 0; i < LINE; i += 16)
            _mm_stream_si128((void *)(dst + i), _mm_loadu_si128((const void *)(src + i)));
}

static void stream(char *dst, const char *src, int64_t bytes) {
    int64_t head = -(intptr_t)dst & (LINE - 1), lines = (bytes - head) / LINE;
    int64_t tail = head + lines * LINE;
    memcpy(dst, src, (size_t)head);
    if (__builtin_cpu_supports("avx512f"))
        stream_512(dst + head, src + head, lines);
    else
        stream_128(dst + head, src + head, lines);
    memcpy(dst + tail, src + tail, (size_t)(bytes - tail));
}

// Runs that follow one another in the output, and so fill its lines although each is short. `dst` and
// `run` are multiples of 16.
static void stream_packed(char *dst, const char *src, int64_t run, int64_t count, int64_t src_step) {
    for (; count > 0; count--, src += src_step)
        for (int64_t at = 0; at < run; at += 16, dst += 16)
            _mm_stream_si128((void *)dst, _mm_loadu_si128((const void *)(src + at)));
}
static bool streams_packed(const char *dst, int64_t run, int64_t dst_step) {
    return run % 16 == 0 && dst_step == run && (intptr_t)dst % 16 == 0;
}
static void end_streams(void) { _mm_sfence(); }
static void pause_spin(void) { _mm_pause(); }
#else
static void copy_run(char *dst, const char *src, int64_t bytes) { copy_run_PLAIN(dst, src, bytes); }
static void stream(char *dst, const char *src, int64_t bytes) { copy_run(dst, src, bytes); }
static void stream_packed(char *dst, const char *src, int64_t run, int64_t count, int64_t src_step) {
    (void)dst, (void)src, (void)run, (void)count, (void)src_step;
}
static bool streams_packed(const char *dst, int64_t run, int64_t dst_step) {
    (void)dst, (void)run, (void)dst_step;
    return false;
}
static void end_streams(void) {}
static void pause_spin(void) {
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}
#endif

// How many of `count` packed runs may be copied as longer words. Each store must end inside the
// output, where the next one overwrites what is too much, and each load inside the last run.
static int64_t whole_words(int64_t run, int64_t word, int64_t count) {
    int64_t covered = (word - 1) / run;  // runs that begin inside a word, after its own
    return count > covered ? count - covered : 0;
}

// `count` runs of `run` bytes, which are `src_step` and `dst_step` bytes apart. Up to 128 bytes are
// copied in words whose size is a constant, which takes a fraction of a call of memcpy.
static void copy_runs(
    char *dst, const char *src, int64_t run, int64_t count, int64_t dst_step, int64_t src_step,
    bool streams
) {
#define EACH(FROM, TO, BYTES) \
    for (int64_t i = (FROM); i < (TO); i++) memcpy(dst + i * dst_step, src + i * src_step, (BYTES))
#define TWICE(BYTES) /* a run as two words that overlap */ \
    for (int64_t i = 0; i < count; i++) { \
        memcpy(dst + i * dst_step, src + i * src_step, (BYTES)); \
        memcpy(dst + i * dst_step + run - (BYTES), src + i * src_step + run - (BYTES), (BYTES)); \
    }
    if (src_step == run && dst_step == run) run *= count, count = 1;
    if (streams && run < STREAMED_RUN && streams_packed(dst, run, dst_step)) {
        stream_packed(dst, src, run, count, src_step);
        return;
    }
    switch (run) {
    case 1: EACH(0, count, 1); return;
    case 2: EACH(0, count, 2); return;
    case 4: EACH(0, count, 4); return;
    case 8: EACH(0, count, 8); return;
    case 16: EACH(0, count, 16); return;
    }
    if (run < 16 && dst_step == run && src_step >= run) {
        int64_t word = run < 4 ? 4 : run < 8 ? 8 : 16, words = whole_words(run, word, count);
        if (word == 4) EACH(0, words, 4);
        else if (word == 8) EACH(0, words, 8);
        else EACH(0, words, 16);
        EACH(words, count, (size_t)run);
    } else if (streams && run >= STREAMED_RUN) {
        for (int64_t i = 0; i < count; i++) stream(dst + i * dst_step, src + i * src_step, run);
    } else if (run > 128) {
        for (int64_t i = 0; i < count; i++) copy_run(dst + i * dst_step, src + i * src_step, run);
    } else if (run < 16) {
        EACH(0, count, (size_t)run);
    } else if (run <= 32) {
        TWICE(16)
    } else if (run <= 64) {
        TWICE(32)
    } else {
        TWICE(64)
    }
#undef EACH
#undef TWICE
}

// -- Tasks -------------------------------------------------------------------------------------------

// Items `begin` to `end` of a nest, in the order of its loops, the last of which is the innermost.
static void copy_items(
    const struct nest *nest, const struct loop *loops, const char *src, char *dst, int64_t begin,
    int64_t end, bool streams
) {
    const struct loop *inner = &loops[nest->loops - 1];
    int64_t index[MOST_LOOPS], outer = nest->loops - 1;
    int64_t rest = begin / inner->size, first = begin % inner->size;
    for (int64_t depth = outer - 1; depth >= 0; depth--) {
        index[depth] = rest % loops[depth].size;
        rest /= loops[depth].size;
        src += index[depth] * loops[depth].src;
        dst += index[depth] * loops[depth].dst;
    }
    while (begin < end) {
        int64_t count = inner->size - first < end - begin ? inner->size - first : end - begin;
        copy_runs(dst + first * inner->dst, src + first * inner->src, nest->run, count, inner->dst,
            inner->src, streams);
        begin += count, first = 0;
        for (int64_t depth = outer - 1; depth >= 0; depth--) {
            if (++index[depth] < loops[depth].size) {
                src += loops[depth].src, dst += loops[depth].dst;
                break;
            }
            index[depth] = 0;
            src -= (loops[depth].size - 1) * loops[depth].src;
            dst -= (loops[depth].size - 1) * loops[depth].dst;
        }
    }
}

// One task: some of the items of each nest of its group.
static void copy_task(const struct call *call, int64_t task) {
    const struct plan *plan = call->plan;
    const struct group *groups = (const void *)(plan + 1), *group;
    const struct nest *nests = (const void *)(groups + plan->groups), *nest;
    const struct loop *loops = (const void *)(nests + plan->nests);
    int64_t low = 0, high = plan->groups;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(groups[middle].first_task <= task ? &low : &high) = middle;
    }
    group = &groups[low], nest = &nests[group->first_nest];
    int64_t begin = (task - group->first_task) * group->step, rest = group->items - begin;
    int64_t end = begin + (rest < group->step ? rest : group->step);
    if (group->kernel >= 0) {
        char *outs[MOST_OUTS] = {0};
        for (int64_t i = 0; i < group->nests; i++)
            outs[i] = call->outs[nest[i].output] + begin * nest[i].run;
        const char *in = call->src + nest->src + begin * loops[nest->first_loop].src;
        kernels[group->kernel / 15].of[group->kernel / 3 % 5][group->kernel % 3](in, outs, end - begin);
        return;
    }
    for (int64_t i = 0; i < group->nests; i++, nest++)
        copy_items(nest, &loops[nest->first_loop], call->src + nest->src,
            call->outs[nest->output] + nest->dst, begin, end, plan->streams);
    if (plan->streams) end_streams();
}

// -- Threads -----------------------------------------------------------------------------------------

// The one split at a time that is shared. Its caller takes the first task that is left and helpers
// take the last, so that repeated splits find their rows in the cache of the same processor.
static struct {
    atomic_bool is_owned;  // by a caller that shares its split; others copy alone
    _Atomic(const struct call *) call;
    atomic_llong threads, left, last;  // of this split; tasks that nobody has taken; the helpers' next
    atomic_llong inside;               // helpers that may still copy
    int64_t ended_ns;                  // when the last owner ended
    pthread_mutex_t lock;              // of what follows
    pthread_cond_t work;
    int64_t started, sleeping;
} board = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static bool has_work(int64_t number) {
    return atomic_load(&board.left) > 0 && number < atomic_load(&board.threads);
}

// A helper, whose number is 1 or more. It counts itself in before it takes a task, because the owner
// returns when no task is left and nobody is inside. After some time without work it sleeps.
static void *help(void *number) {
    for (int64_t spins = 0;; spins++) {
        if (has_work((intptr_t)number)) {
            atomic_fetch_add(&board.inside, 1);
            while (atomic_fetch_sub(&board.left, 1) > 0)
                copy_task(atomic_load(&board.call), atomic_fetch_sub(&board.last, 1));
            atomic_fetch_sub(&board.inside, 1);
            spins = 0;
        }
        pause_spin();
        if (spins < SPINS) continue;
        pthread_mutex_lock(&board.lock);
        board.sleeping++;
        while (!has_work((intptr_t)number)) pthread_cond_wait(&board.work, &board.lock);
        board.sleeping--;
        pthread_mutex_unlock(&board.lock);
        spins = 0;
    }
    return NULL;
}

// Starts helpers until there are `count`. If the system refuses one, the others do the work. Signals
// are for Python's threads. The process does not wait for helpers when it ends.
static void start(int64_t count) {
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    if (board.started >= count || pthread_attr_init(&attributes) != 0) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (board.started < count
           && pthread_create(&thread, &attributes, help, (void *)(intptr_t)(board.started + 1)) == 0)
        board.started++;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// A child of a fork has no helper, and perhaps not the owner, so its board is new. The thread that
// forks holds the lock meanwhile, so that no other one does.
static void before_fork(void) { pthread_mutex_lock(&board.lock); }
static void in_parent(void) { pthread_mutex_unlock(&board.lock); }
static void in_child(void) {
    atomic_store(&board.left, 0);
    atomic_store(&board.inside, 0);
    atomic_store(&board.is_owned, false);
    board.started = board.sleeping = 0;
    pthread_cond_init(&board.work, NULL);
    pthread_mutex_unlock(&board.lock);
}
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// Shows helpers a split, and wakes those that sleep if that pays: for a large split, or in a series
// of splits. A helper that wakes on this processor can only leave it when it runs, hence the yield.
static void share(const struct call *call) {
    bool is_asleep = false;
    atomic_store(&board.call, call);
    atomic_store(&board.last, call->end - 1);
    atomic_store(&board.threads, call->threads);
    atomic_store(&board.left, call->end - call->first);
    if (!call->wakes && now_ns() - board.ended_ns > SERIES_NS) return;
    pthread_mutex_lock(&board.lock);
    start(call->threads - 1);
    is_asleep = board.sleeping > 0;
    if (is_asleep) pthread_cond_broadcast(&board.work);
    pthread_mutex_unlock(&board.lock);
    if (is_asleep) sched_yield();
}

// Carries out tasks `first` to `end` of a plan, and returns when all of them are done.
void dmlsplit_copy(const struct call *call) {
    if (call->threads < 2 || call->end - call->first < 2 || atomic_exchange(&board.is_owned, true)) {
        for (int64_t task = call->first; task < call->end; task++) copy_task(call, task);
        return;
    }
    share(call);
    for (int64_t task = call->first; atomic_fetch_sub(&board.left, 1) > 0; task++)
        copy_task(call, task);
    for (int64_t spins = 0; atomic_load(&board.inside) > 0; spins++)
        spins < SPINS ? pause_spin() : (void)sched_yield();
    board.ended_ns = now_ns();
    atomic_store(&board.is_owned, false);
}
