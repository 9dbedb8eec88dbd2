// Makes one file operation fail, or sends a signal before it.
//
// With LD_PRELOAD, these functions replace those of the C library. They count the calls that concern
// a folder. Call number `at` fails with `error_number`, or is made after `signal_number` was sent.
// The functions are those that CPython, its ctypes and its C libraries call on 64-bit Linux. The
// counts are in shared memory, so that a parent can read those of a forked child.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace {

struct Shared {
    std::atomic<long> calls;
    char failed[PATH_MAX + 64];  // the chosen call and its file
};

Shared* const shared = static_cast<Shared*>(
    mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
std::string folder;
long at;
int error_number;
int signal_number;

std::string link_target(const std::string& link) {
    char target[PATH_MAX];
    const ssize_t size = readlink(link.c_str(), target, sizeof target);
    return size < 0 ? "" : std::string(target, size);
}

std::string of_handle(int handle) { return link_target("/proc/self/fd/" + std::to_string(handle)); }

std::string of_path(const char* path, int base = AT_FDCWD) {
    if (path[0] == '/') return path;
    return (base == AT_FDCWD ? link_target("/proc/self/cwd") : of_handle(base)) + "/" + path;
}

// Whether the call must fail; sets errno if so.
bool fails(const char* name, const std::string& path) {
    if (folder.empty() || path.rfind(folder, 0) != 0) return false;
    if (++shared->calls != at) return false;
    snprintf(shared->failed, sizeof shared->failed, "%s %s", name, path.c_str());
    if (signal_number) kill(getpid(), signal_number);
    errno = error_number;
    return error_number;
}

template <typename Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void choose_fault(const char* where, long number, int error, int signal) {
    folder = where;
    at = number;
    error_number = error;
    signal_number = signal;
    shared->calls = 0;
    shared->failed[0] = 0;
}
long counted_calls() { return shared->calls; }
const char* failed_call() { return shared->failed; }

#define OPEN(name)                                                   \
    int name(const char* path, int flags, ...) {                     \
        va_list rest;                                                \
        va_start(rest, flags);                                       \
        const mode_t mode = va_arg(rest, mode_t);                    \
        va_end(rest);                                                \
        if (fails("open", of_path(path))) return -1;                 \
        return next<int(const char*, int, mode_t)>(#name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                       \
    int name(int base, const char* path, int flags, ...) {                 \
        va_list rest;                                                      \
        va_start(rest, flags);                                             \
        const mode_t mode = va_arg(rest, mode_t);                          \
        va_end(rest);                                                      \
        if (fails("open", of_path(path, base))) return -1;                 \
        return next<int(int, const char*, int, mode_t)>(#name)(base, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

// The other calls, each with its parameters, the values to pass on and the path that it concerns.
#define CALL(type, name, parameters, arguments, path)      \
    type name parameters {                                 \
        if (fails(#name, path)) return static_cast<type>(-1); \
        return next<type parameters>(#name) arguments;     \
    }
CALL(ssize_t, read, (int f, void* p, size_t n), (f, p, n), of_handle(f))
CALL(ssize_t, write, (int f, const void* p, size_t n), (f, p, n), of_handle(f))
CALL(ssize_t, writev, (int f, const iovec* v, int n), (f, v, n), of_handle(f))
CALL(int, ftruncate64, (int f, off_t n), (f, n), of_handle(f))
CALL(int, truncate64, (const char* p, off_t n), (p, n), of_path(p))
CALL(int, rename, (const char* a, const char* b), (a, b), of_path(a))
CALL(int, renameat, (int d, const char* a, int e, const char* b), (d, a, e, b), of_path(a, d))
CALL(int, link, (const char* a, const char* b), (a, b), of_path(a))
CALL(int, linkat, (int d, const char* a, int e, const char* b, int g), (d, a, e, b, g),
     of_path(a, d))
CALL(int, unlink, (const char* p), (p), of_path(p))
CALL(int, unlinkat, (int d, const char* p, int g), (d, p, g), of_path(p, d))
CALL(int, rmdir, (const char* p), (p), of_path(p))
CALL(int, mkdir, (const char* p, mode_t m), (p, m), of_path(p))
CALL(int, mkdirat, (int d, const char* p, mode_t m), (d, p, m), of_path(p, d))

// No test cuts the power, so nothing waits for the disk.
int fsync(int handle) { return fails("fsync", of_handle(handle)) ? -1 : 0; }
int fdatasync(int handle) { return fails("fdatasync", of_handle(handle)) ? -1 : 0; }

int posix_fallocate64(int handle, off_t start, off_t size) {
    if (fails("posix_fallocate", of_handle(handle))) return errno;
    return next<int(int, off_t, off_t)>("posix_fallocate64")(handle, start, size);
}

void* mmap64(void* where, size_t size, int access, int flags, int handle, off_t start) {
    if (handle >= 0 && fails("mmap", of_handle(handle))) return MAP_FAILED;
    return next<void*(void*, size_t, int, int, int, off_t)>("mmap64")(
        where, size, access, flags, handle, start);
}

}  // extern "C"
