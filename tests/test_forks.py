"""A first call beside a fork in another thread, or a signal in its own."""

import os
import sys

import pytest

from tests.support.command import ROOT, ran

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Without pytest's threads and imports. A child that hangs is ended by its alarm.
FORKS = """
import os, signal, sys, threading, time, warnings
import dmlsplit as dml
warnings.simplefilter("ignore")
reached = threading.Event()

def call():
    for name in dml.__all__:
        getattr(dml, name)
    narrow = dml.TensorDesc("UINT8", (1, 1, 1 << 18, 3))
    dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(narrow, axis=3, sizes=(1, 1, 1)))
    import numpy as np
    assert [len(piece) for piece in dml.split(np.arange(6), (1, 5))] == [1, 5]

def check(moment):
    signal.alarm(60)
    other = threading.Thread(target=call)
    other.start()
    moment()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        call()
        os._exit(0)
    other.join()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

AT_AN_IMPORT = """
class Finder:
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            reached.set()
            time.sleep(0.1)  # the main thread forks now, or waits to do so

sys.meta_path.insert(0, Finder)
print(check(lambda: reached.wait(20)))
"""
LATE = "dmlsplit.execution.eager", "numpy", "dmlsplit.backends.cpu.engine", "yaml"


@pytest.mark.parametrize("module", LATE)
def test_a_fork_waits_for_an_import(module: str) -> None:
    process = ran(sys.executable, "-c", FORKS + AT_AN_IMPORT, module)
    assert (process.stdout, process.stderr) == ("0\n", "")


AT_A_PROPERTY = """
from dmlsplit import geometry

def call():
    geometry.SplitGeometry(geometry.RowSplit(1, 6, (0,), (0,), (6,))).pieces

def slow(*_):
    reached.set()
    time.sleep(0.1)

geometry.StridedCopy = slow
print(check(lambda: reached.wait(20)))
"""


def test_computing_a_cached_property_never_blocks_a_forked_child() -> None:
    """That of functools is in Python 3.11, for all instances at once."""
    process = ran(sys.executable, "-c", FORKS + AT_A_PROPERTY)
    assert (process.stdout, process.stderr) == ("0\n", "")
    texts = {path: path.read_text("utf-8") for path in (ROOT / "dmlsplit").rglob("*.py")}
    (only,) = (path for path, text in texts.items() if "import cached_property as" in text)
    assert only.name == "forks.py"


AT_ANY_TIME = """
for milliseconds in range(0, 600, 20):
    child = os.fork()  # has imported nothing yet
    if child == 0:
        os._exit(check(lambda: time.sleep(milliseconds / 1000)) != 0)
    if os.waitpid(child, 0)[1]:
        print(f"a child forked after {milliseconds} ms hangs")
print("done")
"""


@pytest.mark.slow
def test_a_child_forked_at_any_time_can_split() -> None:
    process = ran(sys.executable, "-c", FORKS + AT_ANY_TIME)
    assert (process.stdout, process.stderr) == ("done\n", "")


IN_A_HANDLER = """
import signal, sys
import numpy as np
import dmlsplit as dml
from dmlsplit import UnsupportedError
outcomes = []

def split(*_):
    try:
        outcomes.append([piece.tolist() for piece in dml.split(np.arange(6), (1, 5))])
    except UnsupportedError as error:
        outcomes.append("Fix: call dmlsplit once" in str(error))

class Finder:
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGALRM)

signal.signal(signal.SIGALRM, split)
sys.meta_path.insert(0, Finder)
split()
split()
print(outcomes)
"""


@pytest.mark.parametrize("module", ["dmlsplit.execution.eager", "dmlsplit.geometry"])
def test_a_signal_handler_that_splits_during_the_first_call_is_told_why_it_cannot(
    module: str,
) -> None:
    process = ran(sys.executable, "-c", IN_A_HANDLER, module)
    pieces = [[0], [1, 2, 3, 4, 5]]
    assert (process.stdout, process.stderr) == (f"{[True, pieces, pieces]}\n", "")
