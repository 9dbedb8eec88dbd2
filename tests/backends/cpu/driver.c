// Carries out the random splits of a file that test_copy.py writes, on several callers at once, each of
// which may use helpers, and compares every byte. Without AddressSanitizer, each memory ends or begins
// at a page that faults. With forks, children of the main thread split too, while callers do.

#define _DEFAULT_SOURCE  // MAP_ANONYMOUS
#include COPY
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 0xA5, MAX_OUTPUTS = 64, MAX_CALLERS = 16 };
static char *file;     // a number of splits, then each as `read_split` reads it
static int64_t rounds;

struct room { char *begin, *base; size_t bytes; };  // memory, and the pages around it

static struct room room_of(int64_t size, bool is_at_end) {
#if defined(__SANITIZE_ADDRESS__)
    (void)is_at_end;
    char *begin = malloc((size_t)size + 1);
    return (struct room){begin + 1, begin, 0};
#else
    size_t page = 4096, middle = ((size_t)size + page - 1) / page * page, bytes = middle + 2 * page;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base, page, PROT_NONE)
        || mprotect(base + page + middle, page, PROT_NONE))
        abort();
    return (struct room){base + page + (is_at_end ? middle - (size_t)size : 0), base, bytes};
#endif
}

static void leave(struct room room) {
#if defined(__SANITIZE_ADDRESS__)
    free(room.base);
#else
    munmap(room.base, room.bytes);
#endif
}

static int64_t next(const char **place) {
    int64_t word;
    memcpy(&word, *place, sizeof word);
    *place += sizeof word;
    return word;
}

// Carries out one split and returns what follows it in the file, or ends the process.
static const char *check(const char *place, bool is_at_end) {
    int64_t words = next(&place), tasks = next(&place), size = next(&place), first = next(&place);
    int64_t count = next(&place);
    struct room plan = room_of(words * 8, false), source = room_of(size, is_at_end);
    struct room outs[MAX_OUTPUTS];
    struct call *call = malloc(sizeof *call + (size_t)count * sizeof *call->outs);
    int64_t skews[MAX_OUTPUTS], sizes[MAX_OUTPUTS];
    int64_t *copied = malloc((size_t)words * 8);
    if (call == NULL || copied == NULL || count > MAX_OUTPUTS) abort();
    for (int64_t i = 0; i < count; i++) {
        skews[i] = next(&place), sizes[i] = next(&place);
        outs[i] = room_of(skews[i] + sizes[i], is_at_end);
        memset(outs[i].begin, GUARD, (size_t)(skews[i] + sizes[i]));
        call->outs[i] = outs[i].begin + skews[i];
    }
    memcpy(copied, place, (size_t)words * 8), place += words * 8;
    memcpy(source.begin, place, (size_t)size), place += size;
    call->plan = (const void *)copied, call->src = source.begin + first;
    call->threads = 3, call->wakes = 1;
    for (int part = 0; part < 2; part++) {
        call->first = part ? tasks / 3 : 0, call->end = part ? tasks : tasks / 3;
        dmlsplit_copy(call);
    }
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(outs[i].begin, place, (size_t)(skews[i] + sizes[i])) != 0) {
            fprintf(stderr, "output %d of %d differs\n", (int)i, (int)count);
            exit(3);
        }
        place += skews[i] + sizes[i];
        leave(outs[i]);
    }
    leave(plan), leave(source), free(call), free(copied);
    return place;
}

static void *caller(void *number) {
    for (int64_t round = 0; round < rounds; round++) {
        const char *place = file;
        for (int64_t splits = next(&place); splits > 0; splits--)
            place = check(place, (round + (intptr_t)number) % 2);
    }
    return NULL;
}

int main(int words, char **line) {
    if (words != 5) return 2;
    int64_t callers = atoi(line[2]), forks = atoi(line[4]);
    pthread_t threads[MAX_CALLERS];
    FILE *from = fopen(line[1], "rb");
    if (from == NULL || fseek(from, 0, SEEK_END)) return 2;
    size_t size = (size_t)ftell(from);
    file = malloc(size);
    rewind(from);
    if (file == NULL || fread(file, 1, size, from) != size || fclose(from)) return 2;
    rounds = atoi(line[3]);
    for (int64_t i = 0; i < callers; i++)
        if (pthread_create(&threads[i], NULL, caller, (void *)(intptr_t)i)) return 2;
    for (int64_t i = 0; i < forks; i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);  // it hangs
            rounds = 1, caller(NULL);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status != 0) return 4;
    }
    for (int64_t i = 0; i < callers; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
