// The copies of a split, on the caller's thread and on helpers that share its work.
//
// plan.py makes a plan, which says what is copied but not where, as 64-bit integers whose products
// Python has checked; native.py passes it here. A *nest* is a loop nest over runs of contiguous bytes, from
// the input to one output. Nests of neighbouring outputs that read the same rows are a *group*. An *item*
// is one run of each nest of a group, and a *task* is `step` items, which one thread copies: usually some
// 64 KiB (plan.py).

#define _GNU_SOURCE  // pthread_sigmask and clock_gettime under -std=c11
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(void *) == sizeof(int64_t), "calls hold addresses as 64-bit integers");

enum {
    LINE = 64,            // bytes of a cache line
    WORD = 16,            // bytes of the widest element, and of a vector that any processor has
    LONG_STEPS_RUN = 256,  // bytes; the fewest of a run that is copied a line at a time
    NON_TEMPORAL_RUN = 512,  // bytes; the stores of shorter runs are non-temporal only if they follow one another
    MAX_OUTS = 16,       // of a kernel
    MAX_ROW_OUTS = 64,   // of a group that is copied row by row
    ELEMENT_SIZES = 5, PROCESSOR_KINDS = 3, PERMUTES = 2,  // PERMUTES is the kind that has AVX-512 VBMI
    NO_KERNEL = -1, EQUAL = -2, ROWS = -3,  // as in plan.py; others are indices of `kernels`, pattern by pattern
    SPINS = 1 << 13,      // 120 to 400 us: helpers stay awake between calls from Python, which take 20 us
    STACK = 1 << 20,      // only used pages take memory; the C library keeps thread-local storage there too
    SERIES_NS = 250000,   // if the last split ended this recently, helpers are probably still spinning
    YIELD_RATIO = 100,    // minimum time between yields, or between long waits, in multiples of the last one's duration
    LONG_WAIT_NS = 50000,  // for helpers: one of them lost its processor to another program
};

struct loop { int64_t size, src, dst; };  // iterations, and bytes from one to the next
struct nest { int64_t output, src, dst, run, first_loop, loops; };  // `src`, `dst`: bytes before its first run
struct group { int64_t first_task, items, step, first_nest, nests, kernel; };
struct plan { int64_t groups, nests, non_temporal, kind; };  // its groups, nests and loops follow it
struct call {  // tasks `first` to `end` of a plan, for these addresses
    const struct plan *plan;
    const char *src;
    int64_t first, end, threads, wakes;
    char *outs[];
};

typedef uint8_t u8;
typedef uint16_t u16 __attribute__((aligned(1), may_alias));
typedef uint32_t u32 __attribute__((aligned(1), may_alias));
typedef uint64_t u64 __attribute__((aligned(1), may_alias));
typedef uint64_t u128 __attribute__((vector_size(WORD), aligned(1), may_alias));

// Code that copies is compiled for three kinds of x86-64 processors; `dmlsplit_kind` returns this one's.
#define INLINE __attribute__((always_inline)) static inline
#define PLAIN
#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))
#define EACH_KIND(OF, ...) OF(__VA_ARGS__, PLAIN) OF(__VA_ARGS__, AVX2) OF(__VA_ARGS__, VBMI)
#define KINDS(NAME) {NAME##_PLAIN, NAME##_AVX2, NAME##_VBMI}
int dmlsplit_kind(void) {
    bool is_wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
    return is_wide ? PERMUTES : __builtin_cpu_supports("avx2") ? 1 : 0;
}
#else
#define EACH_KIND(OF, ...) OF(__VA_ARGS__, PLAIN)
#define KINDS(NAME) {NAME##_PLAIN}
int dmlsplit_kind(void) { return 0; }
#endif

// -- Rows of a few narrow elements --------------------------------------------------------------------

// One function for each pattern, such as 1 + 3, each size of its elements and each kind of processor. It makes
// one pass over the rows, which the compiler can vectorise: all distances are constants, and the pragma says
// that no output overlaps another or the input.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // u128 is a vector already
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
typedef void kernel(const void *in, char *const *outs, int64_t rows);
#define KERNEL(NAME, T, BODY, KIND) \
    KIND static void NAME##_##T##_##KIND(const void *from, char *const *outs, int64_t rows) { \
        const T *in = from; \
        T *o[MAX_OUTS]; \
        for (int i = 0; i < MAX_OUTS; i++) o[i] = (T *)outs[i]; \
        INDEPENDENT for (int64_t r = 0; r < rows; r++) { BODY } \
    }
#define KERNELS(NAME, BODY) \
    EACH_KIND(KERNEL, NAME, u8, BODY) EACH_KIND(KERNEL, NAME, u16, BODY) \
    EACH_KIND(KERNEL, NAME, u32, BODY) EACH_KIND(KERNEL, NAME, u64, BODY) \
    EACH_KIND(KERNEL, NAME, u128, BODY)
// Elements of output OUT, from element I of rows of PITCH. The digits of a kernel's name are the elements of
// its outputs; k8 and k16 have that many outputs of one element.
#define ONE(OUT, PITCH, I) o[OUT][r] = in[PITCH * r + I];
#define TWO(OUT, PITCH, I) o[OUT][2 * r] = in[PITCH * r + I]; o[OUT][2 * r + 1] = in[PITCH * r + I + 1];
#define THREE(OUT, PITCH, I) \
    o[OUT][3 * r] = in[PITCH * r + I]; o[OUT][3 * r + 1] = in[PITCH * r + I + 1]; \
    o[OUT][3 * r + 2] = in[PITCH * r + I + 2];
#define EQUAL_TWO(PITCH, I) ONE(I, PITCH, I) ONE(I + 1, PITCH, I + 1)
#define EQUAL_FOUR(PITCH, I) EQUAL_TWO(PITCH, I) EQUAL_TWO(PITCH, I + 2)
KERNELS(k11, EQUAL_TWO(2, 0))
KERNELS(k12, ONE(0, 3, 0) TWO(1, 3, 1))
KERNELS(k21, TWO(0, 3, 0) ONE(1, 3, 2))
KERNELS(k13, ONE(0, 4, 0) THREE(1, 4, 1))
KERNELS(k31, THREE(0, 4, 0) ONE(1, 4, 3))
KERNELS(k111, EQUAL_TWO(3, 0) ONE(2, 3, 2))
KERNELS(k1111, EQUAL_FOUR(4, 0))
KERNELS(k8, EQUAL_FOUR(8, 0) EQUAL_FOUR(8, 4))
KERNELS(k16, EQUAL_FOUR(16, 0) EQUAL_FOUR(16, 4) EQUAL_FOUR(16, 8) EQUAL_FOUR(16, 12))
#define SIZES(NAME) \
    {KINDS(NAME##_u8), KINDS(NAME##_u16), KINDS(NAME##_u32), KINDS(NAME##_u64), KINDS(NAME##_u128)}
static kernel *const kernels[][ELEMENT_SIZES][PROCESSOR_KINDS] = {  // in the order of PATTERNS in plan.py
    SIZES(k11), SIZES(k12), SIZES(k21), SIZES(k13), SIZES(k31), SIZES(k111), SIZES(k1111),
    SIZES(k8), SIZES(k16),
};

// -- Runs --------------------------------------------------------------------------------------------

// Copies of runs with non-temporal stores (nt), for outputs that do not fit the cache. Such stores must fill
// whole cache lines, because each partial line costs a write to memory. Long runs can do so, and short runs
// that are contiguous in the output, if their size and address are multiples of a word.
#if defined(__x86_64__)
VBMI static void copy_nt_512(char *dst, const char *src, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += LINE)
        _mm512_stream_si512((void *)(dst + at), _mm512_loadu_si512((const void *)(src + at)));
}
static void copy_nt(char *dst, const char *src, int64_t run, int64_t count, int64_t step) {
    for (; count > 0; count--, src += step)
        for (int64_t at = 0; at < run; at += WORD, dst += WORD)
            _mm_stream_si128((void *)dst, _mm_loadu_si128((const void *)(src + at)));
}
INLINE void copy_lines_nt(char *dst, const char *src, int64_t bytes, const struct plan *plan) {
    if (plan->kind == PERMUTES) copy_nt_512(dst, src, bytes);
    else copy_nt(dst, src, bytes, 1, 0);
}
// Copies the bytes before the output's first whole line.
INLINE void copy_head(char *dst, const char *src) { memcpy(dst, src, (size_t)(-(intptr_t)dst & (LINE - 1))); }
// Copies the lines that begin in a run of a line or more. A line with the end of this run and the beginning of
// the next one, at `next`, is joined first: two partial stores would read it, and write it twice. `next` is NULL
// if the output has no next run.
INLINE void copy_run_nt(char *dst, const char *src, int64_t run, const char *next, const struct plan *plan) {
    int64_t head = -(intptr_t)dst & (LINE - 1), end = head + (run - head) / LINE * LINE, rest = run - end;
    copy_lines_nt(dst + head, src + head, end - head, plan);
    if (rest == 0) return;
    char line[LINE];
    memcpy(next ? line : dst + end, src + end, (size_t)rest);
    if (next == NULL) return;
    memcpy(line + rest, next, (size_t)(LINE - rest));
    copy_lines_nt(dst + end, line, LINE, plan);
}
#endif

// Copies a run of a line or more in steps, the last of which overlaps the one before. How many steps there are
// depends on the run alone, so processors predict the end of the loop: aligning the stores would change it from run
// to run, and saves less than that costs. memcpy would use `rep movsb`, which takes twice as long on some processors.
INLINE void copy_run(char *dst, const char *src, int64_t run) {
#define STEPS(BYTES) \
    for (int64_t at = 0; at < run - (BYTES); at += (BYTES)) memcpy(dst + at, src + at, (BYTES)); \
    memcpy(dst + run - (BYTES), src + run - (BYTES), (BYTES));
    if (run < LONG_STEPS_RUN) { STEPS(32) } else { STEPS(LINE) }
}

// Copies runs of up to a word that are contiguous in the output; each store has as many runs as fit a word.
// Loads and stores reach into later runs, so the last ones are not copied. Returns the number copied.
INLINE int64_t copy_packed(char *dst, const char *src, int64_t run, int64_t count, int64_t step) {
    typedef u8 bytes __attribute__((vector_size(WORD)));
    typedef uint16_t shorts __attribute__((vector_size(WORD)));
    typedef uint32_t ints __attribute__((vector_size(WORD)));
    int64_t i = 0, most = count - (WORD - 1) / run;
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(V, ...) __builtin_shufflevector((bytes)V, (bytes)V, __VA_ARGS__)
#else
#define PICK(V, ...) __builtin_shuffle((bytes)V, (bytes){__VA_ARGS__})
#endif
#define AT(T, I) (*(const T *)(src + (i + (I)) * step))
#define FOUR_AT(T, I) AT(T, I), AT(T, I + 1), AT(T, I + 2), AT(T, I + 3)
#define TWO_WORDS ((u128){AT(u64, 0), AT(u64, 1)})
#define FOUR_WORDS ((ints){FOUR_AT(u32, 0)})
#define STORE(RUN, RUNS, ...) \
    case RUN: \
        for (; i < most; i += (RUNS)) *(u128 *)(dst + i * run) = (u128)__VA_ARGS__; \
        break;
    switch (run) {
    STORE(1, 16, (bytes){FOUR_AT(u8, 0), FOUR_AT(u8, 4), FOUR_AT(u8, 8), FOUR_AT(u8, 12)})
    STORE(2, 8, (shorts){FOUR_AT(u16, 0), FOUR_AT(u16, 4)})
    STORE(3, 4, PICK(FOUR_WORDS, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15))
    STORE(4, 4, FOUR_WORDS)
    STORE(5, 2, PICK(TWO_WORDS, 0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 5, 6, 7, 13, 14, 15))
    STORE(6, 2, PICK(TWO_WORDS, 0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 6, 7, 14, 15))
    STORE(7, 2, PICK(TWO_WORDS, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 7, 15))
    STORE(8, 2, TWO_WORDS)
    default:
        for (; i < most; i++) *(u128 *)(dst + i * run) = AT(u128, 0);
    }
    return i;
}

// Copies `count` runs of `run` bytes, which are `src_step` and `dst_step` bytes apart. Copies of constant
// size are much faster than a call to memcpy.
INLINE void copy_runs(
    char *dst, const char *src, int64_t run, int64_t count, int64_t dst_step, int64_t src_step,
    const struct plan *plan
) {
#define EACH(...) for (; count > 0; count--, dst += dst_step, src += src_step) { __VA_ARGS__; }
#define TWICE(BYTES) /* a run as two words that overlap */ \
    EACH(memcpy(dst, src, (BYTES)); memcpy(dst + run - (BYTES), src + run - (BYTES), (BYTES)))
    if (src_step == run && dst_step == run) run *= count, count = 1;
    bool is_packed = dst_step == run, is_aligned = run % WORD == 0 && (intptr_t)dst % WORD == 0;
    if (run <= WORD && is_packed && src_step > run && !(plan->non_temporal && is_aligned)) {
        int64_t done = copy_packed(dst, src, run, count, src_step);
        count -= done, dst += done * run, src += done * src_step;
    }
#if defined(__x86_64__)
    if (plan->non_temporal && run >= NON_TEMPORAL_RUN) {
        for (bool is_first = true; count > 0; count--, dst += dst_step, src += src_step, is_first = !is_packed) {
            if (is_first) copy_head(dst, src);
            copy_run_nt(dst, src, run, is_packed && count > 1 ? src + src_step : NULL, plan);
        }
    } else if (plan->non_temporal && is_packed && is_aligned) copy_nt(dst, src, run, count, src_step);
    else
#endif
    if (run == 1) EACH(*dst = *src)
    else if (run < 4) TWICE(2)
    else if (run < 8) TWICE(4)
    else if (run < WORD) TWICE(8)
    else if (run <= 2 * WORD) TWICE(16)
    else if (run <= LINE) TWICE(32)
    else EACH(copy_run(dst, src, run))
}

// Copies rows of `count` pieces of `run` bytes, at most 8 each. A store writes one output's pieces of several
// rows, permuted from two vectors: these hold whole rows if five fit, or else a word of each of eight rows.
// Loads and stores reach into later rows, so the last ones are not copied. Returns the number of rows copied.
#if defined(__x86_64__)
VBMI static int64_t copy_equal(
    const char *src, char *const *outs, int64_t count, int64_t run, int64_t rows
) {
#define ROW(I) _mm_loadu_si128((const void *)(in + (I) * step))
#define FOUR_ROWS(I) _mm512_inserti32x4(_mm512_inserti32x4(_mm512_inserti32x4( \
    _mm512_castsi128_si512(ROW(I)), ROW(I + 1), 1), ROW(I + 2), 2), ROW(I + 3), 3)
    int64_t step = count * run, end = rows - LINE / run - 1, r = 0;
    bool is_whole = 2 * LINE / step >= 5;
    int64_t taken = is_whole ? 2 * LINE / step : 8, most = is_whole ? count : WORD / run;
    u8 bytes[LINE] = {0};
    for (int64_t i = 0; i < taken * run; i++)
        bytes[i] = (u8)(i / run * (is_whole ? step : WORD) + i % run);
    for (int64_t first = 0; first < count; first += most) {
        int64_t last = first + most < count ? first + most : count;
        for (r = 0; r <= end; r += taken) {
            const char *in = src + r * step + first * run;
            __m512i picked = _mm512_loadu_si512(bytes);
            __m512i low = is_whole ? _mm512_loadu_si512(in) : FOUR_ROWS(0);
            __m512i high = is_whole ? _mm512_loadu_si512(in + LINE) : FOUR_ROWS(4);
            for (int64_t i = first; i < last; i++) {
                __m512i out = _mm512_permutex2var_epi8(low, picked, high);
                void *to = outs[i] + r * run;
                if (taken * run <= 32) _mm256_storeu_si256(to, _mm512_castsi512_si256(out));
                else _mm512_storeu_si512(to, out);
                picked = _mm512_add_epi8(picked, _mm512_set1_epi8((char)run));
            }
        }
    }
    return r;
}
#endif

// -- Tasks -------------------------------------------------------------------------------------------

// Copies runs `begin` to `end` of a nest, in the order of its loops, the last of which is the innermost.
INLINE void copy_nest(
    const struct nest *nest, const struct loop *loops, const char *src, char *dst, int64_t begin,
    int64_t end, const struct plan *plan
) {
    const struct loop *inner = &loops[nest->loops - 1];
    for (int64_t count; begin < end; begin += count) {
        int64_t outer = begin / inner->size, first = begin % inner->size, rest = inner->size - first;
        int64_t src_offset = first * inner->src, dst_offset = first * inner->dst;
        for (int64_t depth = nest->loops - 2; depth >= 0; outer /= loops[depth--].size) {
            src_offset += outer % loops[depth].size * loops[depth].src;
            dst_offset += outer % loops[depth].size * loops[depth].dst;
        }
        count = rest < end - begin ? rest : end - begin;
        copy_runs(
            dst + dst_offset, src + src_offset, nest->run, count, inner->dst, inner->src, plan);
    }
}

// Copies items of a group with one loop and packed outputs, in the order of the input: processors fetch ahead
// what is read in order, and copies to one output after another would skip the runs of the others.
INLINE void copy_rows(
    const struct call *call, const struct group *group, const struct nest *nests, const struct loop *rows,
    int64_t begin, int64_t end
) {
    struct { char *dst; const char *src; int64_t run; } pieces[MAX_ROW_OUTS], *piece, *last = pieces + group->nests;
    for (piece = pieces; piece < last; piece++, nests++) {
        piece->dst = call->outs[nests->output] + nests->dst + begin * nests->run;
        piece->src = call->src + nests->src + begin * rows->src;
        piece->run = nests->run;
#if defined(__x86_64__)
        if (call->plan->non_temporal) copy_head(piece->dst, piece->src);
#endif
    }
    for (; begin < end; begin++)
        for (piece = pieces; piece < last; piece++) {
            const char *next = piece->src + rows->src;
#if defined(__x86_64__)
            if (call->plan->non_temporal)
                copy_run_nt(piece->dst, piece->src, piece->run, begin + 1 < end ? next : NULL, call->plan);
            else
#endif
            copy_run(piece->dst, piece->src, piece->run);
            piece->dst += piece->run, piece->src = next;
        }
}

// Copies one task: some items of its group.
INLINE void copy_task_body(const struct call *call, int64_t task) {
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
    if (group->kernel == ROWS) {
        copy_rows(call, group, nest, &loops[nest->first_loop], begin, end), begin = end;
    } else if (group->kernel != NO_KERNEL) {
        char *outs[MAX_OUTS] = {0};
        for (int64_t i = 0; i < group->nests; i++)
            outs[i] = call->outs[nest[i].output] + begin * nest[i].run;
        const char *in = call->src + nest->src + begin * loops[nest->first_loop].src;
#if defined(__x86_64__)
        if (group->kernel == EQUAL) begin += copy_equal(in, outs, group->nests, nest->run, end - begin);
        else
#endif
        kernels[group->kernel / ELEMENT_SIZES][group->kernel % ELEMENT_SIZES][plan->kind](
            in, outs, end - begin), begin = end;
    }
    for (const struct nest *copied = nest; begin < end && copied < nest + group->nests; copied++)
        copy_nest(copied, &loops[copied->first_loop], call->src + copied->src,
            call->outs[copied->output] + copied->dst, begin, end, plan);
#if defined(__x86_64__)
    if (plan->non_temporal) _mm_sfence();
#endif
}
#define TASK(NAME, KIND) \
    KIND static void NAME##_##KIND(const struct call *call, int64_t task) { copy_task_body(call, task); }
EACH_KIND(TASK, copy_task_on)
static void copy_task(const struct call *call, int64_t task) {
    static void (*const of_kind[])(const struct call *, int64_t) = KINDS(copy_task_on);
    of_kind[call->plan->kind](call, task);
}

// -- Threads -----------------------------------------------------------------------------------------

// The pool shares at most one split at a time. Its caller takes tasks from the first and helpers take them
// from the last, so that repeated splits find their rows in the cache of the same processor.
static struct {
    atomic_bool is_owned;  // by a caller that shares its split; others copy alone
    _Atomic(const struct call *) call;
    atomic_llong helpers, remaining_tasks;  // how many this split may have; tasks that nobody has taken
    atomic_llong alone_ns;             // until when small splits are not shared, as after a long wait
    atomic_llong helpers_next, active_helpers;  // the helpers' next task; helpers that may still copy
    int64_t ended_ns, yield_ns;        // when the last owner ended, and when one may yield again
    pthread_mutex_t lock;              // for the fields below
    pthread_cond_t work;
    int64_t started, sleeping;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static void pause_spin(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static bool has_work(void) {
    return atomic_load(&pool.remaining_tasks) > 0
        && atomic_load(&pool.active_helpers) < atomic_load(&pool.helpers);
}

// The loop of a helper. It counts itself as active before it takes a task, because the owner returns when no
// task remains and no helper is active. Helpers that the split has no place for sleep after SPINS, as without work.
static void *help(void *unused) {
    for (int64_t spins = 0;; spins++) {
        if (has_work()) {
            bool has_place = atomic_fetch_add(&pool.active_helpers, 1) < atomic_load(&pool.helpers);
            for (; has_place && atomic_fetch_sub(&pool.remaining_tasks, 1) > 0; spins = 0)
                copy_task(atomic_load(&pool.call), atomic_fetch_sub(&pool.helpers_next, 1));
            atomic_fetch_sub(&pool.active_helpers, 1);
        }
        pause_spin();
        if (spins < SPINS) continue;
        pthread_mutex_lock(&pool.lock);
        pool.sleeping++;
        while (!has_work()) pthread_cond_wait(&pool.work, &pool.lock);
        pool.sleeping--;
        pthread_mutex_unlock(&pool.lock);
        spins = 0;
    }
    return unused;
}

// Starts helpers until there are `count`. If the system refuses one, the others do its work. They block all
// signals, which are for Python's threads. The process does not wait for helpers when it ends.
static void start(int64_t count) {
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    if (pool.started >= count || pthread_attr_init(&attributes) != 0) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (pool.started < count
           && pthread_create(&thread, &attributes, help, NULL) == 0)
        pool.started++;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// The child of a fork has only the thread that forked, no helpers and no owner, so the state is reset. That
// thread holds the lock during the fork, so that no other thread does.
static void before_fork(void) { pthread_mutex_lock(&pool.lock); }
static void in_parent(void) { pthread_mutex_unlock(&pool.lock); }
static void in_child(void) {
    atomic_store(&pool.remaining_tasks, 0);
    atomic_store(&pool.active_helpers, 0);
    atomic_store(&pool.is_owned, false);
    pool.started = pool.sleeping = 0;
    pthread_cond_init(&pool.work, NULL);
    pthread_mutex_unlock(&pool.lock);
}
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// Publishes a split to the helpers, and wakes as many as it needs if that pays: for a large split, or in a
// series of splits. A helper that wakes on this processor must run before it can move to another, hence the
// yield. Beside other programs a yield can take milliseconds, so yields take at most a hundredth of the time.
static void share(const struct call *call) {
    int64_t tasks = call->end - call->first, helpers = (call->threads < tasks ? call->threads : tasks) - 1;
    atomic_store(&pool.call, call);
    atomic_store(&pool.helpers_next, call->end - 1);
    atomic_store(&pool.helpers, helpers);
    atomic_store(&pool.remaining_tasks, tasks);
    int64_t now = now_ns();
    if (!call->wakes && now - pool.ended_ns > SERIES_NS) return;
    pthread_mutex_lock(&pool.lock);
    start(helpers);
    int64_t missing = helpers - (pool.started - pool.sleeping), woken = 0;  // besides those that are awake
    for (; woken < missing && woken < pool.sleeping; woken++) pthread_cond_signal(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    if (woken == 0 || now < pool.yield_ns) return;
    sched_yield();
    pool.yield_ns = now_ns() + YIELD_RATIO * (now_ns() - now);
}

// Carries out the tasks of a call, and returns when all of them are done.
void dmlsplit_copy(const struct call *call) {
    bool is_alone = call->threads < 2 || call->end - call->first < 2
        || (!call->wakes && now_ns() < atomic_load(&pool.alone_ns));
    if (is_alone || atomic_exchange(&pool.is_owned, true)) {
        for (int64_t task = call->first; task < call->end; task++) copy_task(call, task);
        return;
    }
    share(call);
    for (int64_t task = call->first; atomic_fetch_sub(&pool.remaining_tasks, 1) > 0; task++)
        copy_task(call, task);
    int64_t begin = now_ns();
    for (int64_t spins = 0; atomic_load(&pool.active_helpers) > 0; spins++)
        spins < SPINS ? pause_spin() : (void)sched_yield();
    int64_t waited = (pool.ended_ns = now_ns()) - begin;
    if (waited > LONG_WAIT_NS) atomic_store(&pool.alone_ns, pool.ended_ns + YIELD_RATIO * waited);
    atomic_store(&pool.is_owned, false);
}
