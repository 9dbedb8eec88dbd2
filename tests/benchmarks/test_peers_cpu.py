"""Peers on the CPU: exact, or absent with a reason; a wrong one is found."""

import numpy as np
import pytest

from benchmarks import calls, cases, cpu, peers_cpu
from benchmarks.cases import Case
from benchmarks.peers_cpu import Prepared, Problem

TINY = Case("tiny", cases.CASES, (6, 4), "f4", 1, (1, 3))


@pytest.mark.parametrize("name", peers_cpu.PEERS)
@pytest.mark.parametrize("case", [TINY, cases.latency_cases()[-1]], ids=lambda case: case.name)
def test_a_peer_is_exact_or_says_why_not(name: str, case: Case) -> None:
    problem = cpu.random_problem(case, 1)
    try:
        prepared = peers_cpu.PEERS[name](problem)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    cpu.check(problem, prepared)


@pytest.mark.parametrize("name", ["dmlsplit", "dmlsplit dispatch", "dmlsplit eager"])
def test_our_own_calls_are_exact(name: str) -> None:
    problem = cpu.random_problem(TINY, 1)
    cpu.check(problem, calls.PEERS[name](problem))


def test_a_wrong_peer_is_found_out() -> None:
    def forgets_a_byte(problem: Problem) -> Prepared:
        def call() -> None:
            for out, view in zip(problem.outputs, problem.views, strict=True):
                out[...] = view
            problem.outputs[1].view(np.uint8)[-1, -1] ^= 1

        return Prepared(call, lambda: problem.outputs)

    problem = cpu.random_problem(TINY, 1)
    with pytest.raises(AssertionError, match="output 1"):
        cpu.check(problem, forgets_a_byte(problem))
