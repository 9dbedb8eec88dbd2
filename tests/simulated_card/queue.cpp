// The queue: work waits until a call forces it to run, as late as CUDA allows.
//
// Each piece of work knows its predecessors: the work before it on its stream, the events that its
// stream waits for, and those that the rules of the legacy default stream add. A call that waits for
// work runs that work and its predecessors. A test chooses what happens to work on other streams: it
// does not run yet ("late"), or runs first ("early"). CUDA allows both, so if a result depends on the
// choice, a dependency is missing.
#include <algorithm>
#include <map>
#include <set>

#include "card.hpp"

namespace card {
namespace {
constexpr double kWorkMs = 0.002;  // simulated time of one piece of work

std::map<std::uint64_t, WorkPointer>& pending() {
    static auto* works = new std::map<std::uint64_t, WorkPointer>;
    return *works;
}

std::uint64_t works_made = 0;
bool runs_others_first = false;

void run(Work& work) {
    Device& owner = device(work.device);
    if (!owner.broken) {
        const Status status = work.action();
        if (status) fault(work.device, status.number);
    }
    owner.clock_ms += kWorkMs;
    work.finished_ms = owner.clock_ms;
    work.is_done = true;
    work.action = nullptr;
    work.after.clear();
    pending().erase(work.number);
}

using Ordered = std::map<std::uint64_t, WorkPointer>;

Ordered with_what_they_follow(std::vector<WorkPointer> wanted) {
    Ordered found;
    while (!wanted.empty()) {
        const WorkPointer work = wanted.back();
        wanted.pop_back();
        if (!work || work->is_done || !found.emplace(work->number, work).second) continue;
        wanted.insert(wanted.end(), work->after.begin(), work->after.end());
    }
    return found;
}

// The work that need not run after any of `needed`, in order.
std::vector<WorkPointer> free_of(const Ordered& needed) {
    std::vector<WorkPointer> others;
    std::set<std::uint64_t> bound;
    for (const auto& [number, work] : pending()) {
        const bool waits = std::any_of(work->after.begin(), work->after.end(), [&](auto& before) {
            return needed.count(before->number) || bound.count(before->number);
        });
        if (needed.count(number)) continue;
        if (waits) bound.insert(number);
        else others.push_back(work);
    }
    return others;
}
}  // namespace

WorkPointer add(Stream& stream, Action action, std::vector<WorkPointer> after) {
    auto work = std::make_shared<Work>();
    work->number = ++works_made;
    work->device = stream.device;
    work->action = std::move(action);
    work->after = std::move(after);
    pending()[work->number] = work;
    return stream.last = work;
}

void run_until_done(const std::vector<WorkPointer>& wanted) {
    const Ordered needed = with_what_they_follow(wanted);
    if (needed.empty()) return;
    if (runs_others_first)
        for (const WorkPointer& work : free_of(needed)) run(*work);
    for (const auto& [number, work] : needed) run(*work);
}

void run_device(int number) {
    std::vector<WorkPointer> wanted;
    for (const auto& [unused, work] : pending())
        if (work->device == number) wanted.push_back(work);
    run_until_done(wanted);
}

void drop_work(int number) {
    std::vector<WorkPointer> dropped;
    for (const auto& [unused, work] : pending())
        if (work->device == number) dropped.push_back(work);
    for (const WorkPointer& work : dropped) {
        work->is_done = true;
        pending().erase(work->number);
    }
}
}  // namespace card

EXPORT void card_run_others_first(int is_on) { card::runs_others_first = is_on; }
EXPORT std::size_t card_pending() { return card::pending().size(); }
