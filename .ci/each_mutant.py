"""Run the tests of each mutant until one fails, and report the share that they notice, by file.

mutmut writes the mutants, and records which test calls which function. It would collect the tests
again for each mutant, though, which takes longer than most mutants live. Here pytest collects them
once, and a process is forked for each mutant.

    each_mutant.py RESULTS SAMPLE NAMES

The current folder is the `mutants` that mutmut wrote. RESULTS gets a line for each mutant: its
name, and what noticed it. Mutants that RESULTS names already are not run again. SAMPLE and NAMES
are those of .ci/mutants.
"""

import ast
import gc
import json
import os
import re
import resource
import signal
import sys
import time
import tomllib
from contextlib import suppress
from fnmatch import fnmatch
from functools import _lru_cache_wrapper
from pathlib import Path
from random import Random

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.utils.format_utils import mangled_name_from_mutant_name

MAX_TESTS = 8  # CPU seconds of tests for a mutant; nearly all are noticed within the first
MAX_CPU = 60  # seconds; a mutant that takes more is an endless loop
MAX_WAIT = 600  # seconds; a mutant that takes more waits forever
MAX_MEMORY = 8 << 30  # bytes
SURVIVED = "survived"
NOT_ALL = f"survived {MAX_TESTS} s of its tests"
NO_TEST = "survived: no test calls it"


class EachMutant:
    """A plugin of pytest that runs the collected tests on each mutant, in a process of its own."""

    def __init__(self, names: list[str], results: Path) -> None:
        self.names, self.results = names, results
        stats = json.loads(Path("mutmut-stats.json").read_text("utf-8"))
        self.tests: dict[str, list[str]] = stats["tests_by_mangled_function_name"]
        self.seconds: dict[str, float] = stats["duration_by_test"]
        self.has_failed = False  # a test of this process

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replaces the loop of pytest, which runs each test once."""
        gc.collect()
        _forget()
        gc.freeze()  # else each process copies every object when it first looks for garbage
        outcome = _outcome(*self._forked("", session.items, float("inf")))
        if outcome != SURVIVED:
            pytest.exit(f"the tests must pass without a mutant: {outcome}", returncode=1)
        items = {item.nodeid: item for item in session.items}
        tests = {name: self._tests_of(name, items) for name in self.names}
        cost = {name: sum(self.seconds[item.nodeid] for item in tests[name]) for name in tests}
        running: dict[int, tuple[str, int]] = {}
        with self.results.open("a", encoding="utf-8", buffering=1) as results:
            try:
                for number, name in enumerate(sorted(tests, key=cost.__getitem__)):
                    if number % 100 == 0:
                        _say(f"{number} of {len(tests)} mutants")
                    if len(running) > len(os.sched_getaffinity(0)):  # one more: tests also wait
                        results.write(_first_result(running))
                    if tests[name]:
                        pid, pipe = self._forked(name, tests[name], MAX_TESTS)
                        running[pid] = name, pipe
                    else:
                        results.write(f"{name}\t{NO_TEST}\n")
                while running:
                    results.write(_first_result(running))
            finally:
                for pid in running:
                    _kill(pid)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of a test."""
        self.has_failed |= report.failed

    def _tests_of(self, mutant: str, items: dict[str, pytest.Item]) -> list[pytest.Item]:
        """The tests that call its function: first those of its module, then the fast ones."""
        names = self.tests.get(mangled_name_from_mutant_name(mutant), [])
        own = f"/test_{mutant.partition('.x')[0].rpartition('.')[2]}.py"
        names = sorted(names, key=lambda name: (own not in name, self.seconds[name]))
        return [items[name] for name in names if name in items]

    def _forked(self, mutant: str, tests: list[pytest.Item], most: float) -> tuple[int, int]:
        """A process that runs the tests until one fails, and a pipe that tells which."""
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return pid, read
        try:
            os.setpgid(0, 0)  # so that what the tests start ends with it
            outcome = self._first_failure(mutant, tests, most)
        except BaseException as error:
            outcome = f"noticed: {error!r}"
        os.write(write, " ".join(outcome.split())[:2000].encode())
        os._exit(0)

    def _first_failure(self, mutant: str, tests: list[pytest.Item], most: float) -> str:
        set_mutant_under_test(mutant)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        tests[0].config.pluginmanager.unregister(name="terminalreporter")
        if mutant:
            resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU, MAX_CPU))
            resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
            signal.alarm(MAX_WAIT)
        begun = time.process_time()
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            if time.process_time() - begun > most:
                return NOT_ALL
            test.ihook.pytest_runtest_protocol(item=test, nextitem=following)
            if self.has_failed:
                return f"noticed by {test.nodeid}"
        return SURVIVED


def _forget() -> None:
    """Clear the caches of the package: collecting the tests has filled them without a mutant."""
    for each in gc.get_objects():
        if isinstance(each, _lru_cache_wrapper) and each.__module__.startswith("dmlsplit"):
            each.cache_clear()


def _first_result(running: dict[int, tuple[str, int]]) -> str:
    """The line of the mutant whose process ends first."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # it waits
    name, pipe = running.pop(ended.si_pid)
    return f"{name}\t{_outcome(ended.si_pid, pipe)}\n"


def _outcome(pid: int, pipe: int) -> str:
    """What the process wrote, or how it ended."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    _kill(pid)
    _, status = os.waitpid(pid, 0)
    with open(pipe, "rb") as file:
        written = file.read().decode()
    return written or f"noticed: it ended with {os.waitstatus_to_exitcode(status)}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has no group yet
        os.killpg(pid, signal.SIGKILL)


def _results(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return dict(line.split("\t") for line in lines)


def _are_enough(names: list[str], results: dict[str, str], core: list[str], file: str) -> bool:
    """Print the survivors of a file and its share of noticed mutants; whether that is enough."""
    survivors = [name for name in names if results[name].startswith(SURVIVED)]
    for name in survivors:
        _say(f"  {name} {results[name]}")
    share = 1 - len(survivors) / len(names)
    is_enough = share >= (0.95 if any(fnmatch(file, pattern) for pattern in core) else 0.9)
    remark = "" if is_enough else " is too low"
    _say(f"{len(names) - len(survivors):6}/{len(names):<6} {share:6.1%}  {file}{remark}")
    return is_enough


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _chosen(sample: int, begin: str) -> dict[str, list[str]]:
    """The names of the mutants to run, by file."""
    chosen = {}
    for meta in sorted(Path("dmlsplit").rglob("*.meta")):
        names = sorted(json.loads(meta.read_text("utf-8"))["exit_code_by_key"])
        names = [name for name in names if name.startswith(begin)]
        if 0 < sample < len(names):
            names = Random(0).sample(names, sample)  # noqa: S311  the same ones each time
        lenient = _lenient(meta.with_suffix("")) if names else set()
        if names := [name for name in names if name.rpartition(".")[2] not in lenient]:
            chosen[str(meta.with_suffix(""))] = names
    return chosen


def _lenient(file: Path) -> set[str]:
    """The mutants of a file that differ in the `strict` of a `zip` only.

    ``strict=True`` says that the lengths are equal. As long as that is so, no test can miss it.
    """
    bodies: dict[tuple[str, str], str] = {}
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name:
            function, _, number = node.name.rpartition("__mutmut_")
            node.name = function
            bodies[function, number] = re.sub(r", strict=\w+", "", ast.unparse(node))
    return {
        f"{function}__mutmut_{number}"
        for (function, number), body in bodies.items()
        if body == bodies[function, "orig"]
    }


def main() -> int:
    """Run the mutants that have no result yet, and report all that were chosen."""
    path, chosen = Path(sys.argv[1]), _chosen(int(sys.argv[2]), sys.argv[3])
    tools = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]
    before = _results(path)
    todo = [name for names in chosen.values() for name in names if name not in before]
    if todo:
        set_mutant_under_test("")  # modules imported later contain the mutants
        args = [
            *("-p", "no:cacheprovider", "-p", "no:faulthandler", "-n", "0"),
            *tools["mutmut"]["pytest_add_cli_args_test_selection"],
            *tools["mutmut"]["pytest_add_cli_args"],
        ]
        code = pytest.main(args, plugins=[EachMutant(todo, path)])
        if code:
            return int(code)
    results, core = _results(path), tools["coverage"]["report"]["include"]
    enough = [_are_enough(names, results, core, file) for file, names in chosen.items()]
    return 0 if all(enough) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main())
