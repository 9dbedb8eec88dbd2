"""Comparisons in a process with limits."""

import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import pytest
from onnx import TensorProto, helper

import dmlsplit as dml
from dmlsplit.lint.fix import sandbox
from dmlsplit.lint.fix.comparison import Pair
from dmlsplit.lint.fix.sandbox import compare_apart
from tests.support.fixtures import Patch


def relu(count: int = 1) -> bytes:
    """A model of so many Relus, one after another."""
    names = [f"v{index}" for index in range(count + 1)]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, [None])
    y = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [None])
    graph = helper.make_graph(nodes, "net", [x], [y])
    opset = helper.make_opsetid("", 13)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


def test_models_are_compared_at_each_shape() -> None:
    result = compare_apart(Pair(relu(), relu(2), TensorProto.FLOAT, [[3], [0]]))
    assert (result.equal, result.different, result.failed) == ([[3], [0]], [], [])


@pytest.fixture
def fresh(monkeypatch: Patch) -> Patch:
    """A process of the test's own, as the test changes it."""
    monkeypatch.setattr(sandbox, "_process", sandbox.cache(sandbox._process.__wrapped__))
    monkeypatch.setattr(sandbox, "_starts", iter(range(sandbox.MAX_PROCESSES)))
    return monkeypatch


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ("import os; os.abort()", 1),
        ("bytes(sandbox.MEMORY)", 1),
        ("while True: pass", 1),  # the limit of the process is in whole seconds
        ("import time; time.sleep(60)", 0.2),
    ],
)
def test_a_comparison_that_ends_or_fills_its_process_or_does_not_end_is_an_error(
    fault: str, seconds: float, fresh: Patch, tmp_path: Path
) -> None:
    program = f"""
        from dmlsplit.lint.fix import sandbox
        sandbox.SECONDS, sandbox.MEMORY = 1, 2 << 30
        def compare(pair):
            {fault}
        sandbox.compare = compare
        sandbox.main()
    """
    fresh.setattr(sandbox, "PROGRAM", textwrap.dedent(program))
    fresh.setattr(sandbox, "SECONDS", seconds)
    result = compare_apart(Pair(relu(), relu(), TensorProto.FLOAT, [[3]]))
    assert (result.equal, result.failed) == ((), [[3]])
    assert "it ended the process" in result.error
    fresh.undo()
    assert compare_apart(Pair(relu(), relu(), TensorProto.FLOAT, [[3]])).equal == [[3]]


def test_not_every_split_of_a_hostile_model_ends_a_process(fresh: Patch) -> None:
    fresh.setattr(sandbox, "PROGRAM", "import os; os.abort()")
    pair = Pair(relu(), relu(), TensorProto.FLOAT, [[3]])
    # Each takes three processes: three of them leave one of the ten that may end.
    for _ in range(3):
        assert compare_apart(pair).failed == [[3]]
    with pytest.raises(dml.UnsupportedError, match="not made: others before it crashed or took"):
        compare_apart(pair)


def test_the_process_ends_with_the_one_that_started_it() -> None:
    program = """
        import os
        from dmlsplit.lint.fix.comparison import Pair
        from dmlsplit.lint.fix import sandbox
        sandbox.compare_apart(Pair(b"", b"", 1, [[1]]))
        print(sandbox._process()._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    line = [sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.run(line, capture_output=True, text=True, check=False)
    assert process.stdout, process.stderr
    assert not Path("/proc", process.stdout.strip()).exists() or _ends(int(process.stdout))


def _ends(pid: int) -> bool:
    """Whether a process ends within ten seconds; a zombie has."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
