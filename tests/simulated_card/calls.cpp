// The call log, failures on demand, and the errors of the calling thread.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <list>

#include "card.hpp"

namespace card {
namespace {

struct Failure {
    std::string name;
    int calls_before;
    int status;
};

std::recursive_mutex& lock() {
    static auto* mutex = new std::recursive_mutex;
    return *mutex;
}

std::vector<const char*>& log() {
    static auto* names = new std::vector<const char*>;
    return *names;
}

std::list<Failure> failures;
thread_local int last_error = 0;

// A failure that a test asked for is removed from the list when it happens.
int failure_of(const char* name) {
    for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
        if (failure->name != name || failure->calls_before-- > 0) continue;
        const int status = failure->status;
        failures.erase(failure);
        return status;
    }
    return 0;
}
}  // namespace

Call::Call(const char* name, bool needs_device) : status(kOk), lock_(lock()) {
    log().push_back(name);  // it stays valid
    status.number = failure_of(name);
    if (!status && needs_device) status = use_primary_context();
}

Status error(int number) {
    if (number) last_error = number;
    return {number};
}

void say(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::fputs("simulated card: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
    std::fflush(stderr);
    va_end(arguments);
}
}  // namespace card

using namespace card;

EXPORT cudaError_t cudaGetLastError() {
    ENTER;
    const Status found{last_error};
    last_error = 0;
    return found;
}

EXPORT cudaError_t cudaPeekAtLastError() {
    ENTER;
    return Status{last_error};
}

// ---- the interface for tests, which card.py calls ---------------------------------------------

EXPORT std::size_t card_log_size() {
    std::lock_guard guard(card::lock());
    return card::log().size();
}

EXPORT const char* card_log_entry(std::size_t index) {
    std::lock_guard guard(card::lock());
    return card::log()[index];
}

EXPORT void card_log_note(const char* name) {
    std::lock_guard guard(card::lock());
    card::log().push_back(strdup(name));
}

EXPORT void card_fail(const char* name, int calls_before, int status) {
    std::lock_guard guard(card::lock());
    failures.push_back({name, calls_before, status});
}

EXPORT std::size_t card_failures_left() {
    std::lock_guard guard(card::lock());
    return failures.size();
}

EXPORT void card_forget_failures() {
    std::lock_guard guard(card::lock());
    failures.clear();
}

// The result of a CUDA function that the card does not model.
EXPORT int card_refuse(const char* name) {
    Call call(name, false);
    say("%s is not modelled", name);
    return error(cudaErrorNotSupported).number;
}
