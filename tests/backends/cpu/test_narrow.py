"""Narrow rows in one pass: the bytes are NumPy's, and loops are compiled only when that pays."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.backends.cpu import machine_code, narrow, threads, tuning
from dmlsplit.backends.cpu.engine import NumpyProgram
from tests.support.command import ran
from tests.support.cpu_rows import check_rows, program_of, split_at_once

needs_llvmlite = pytest.mark.skipif(not find_spec("llvmlite"), reason="llvmlite is missing")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile at once, without loops that other tests have compiled."""
    monkeypatch.setattr(narrow, "PATIENCE_BYTES", 0)
    monkeypatch.setattr(narrow, "LEAST_ITEMS", 0)
    monkeypatch.delenv(machine_code.VARIABLE, raising=False)
    narrow._loop.cache_clear()
    monkeypatch.setattr(narrow, "MOST_LOOPS", 1 << 20)


@st.composite
def forms(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """Widths of pieces, some of them 0, and the bytes between rows."""
    unit = draw(st.sampled_from([1, 1, 2, 4, 8]))
    most = narrow.MOST_WIDTH // unit
    if draw(st.booleans()):
        widths = [draw(st.integers(1, most))] * draw(st.integers(2, narrow.MOST_OUTPUTS))
    else:
        widths = draw(st.lists(st.integers(0, most), min_size=2, max_size=narrow.MOST_OUTPUTS))
    gap = draw(st.sampled_from([0, 0, 1, 3, 8]))
    return tuple(width * unit for width in widths), gap * unit


@needs_llvmlite
@given(
    form=forms(),
    rows=st.sampled_from([2, 3, 7, 31, 64, 65, 257, 1000]),
    phases=st.lists(st.integers(0, 17), min_size=16, max_size=16),
    count=st.integers(1, 3),
)
@example(((1,) * 16, 0), 1000, [0] * 16, 1)  # words of two elements
@example(((1,) * 3, 0), 1000, [0] * 16, 2)
@example(
    ((1, 2), 13), 1000, [0] * 16, 1
)  # a word would end in the gap, after the end of the memory
@settings(max_examples=60, deadline=None)
def test_one_pass_has_the_bytes_of_numpy(
    form: tuple[tuple[int, ...], int], rows: int, phases: list[int], count: int
) -> None:
    widths, gap = form
    if sum(map(bool, widths)) < 2:
        widths = (*widths, 4, 4)[-4:]
    program = program_of(rows, widths, gap)
    if program.narrow is None:
        assert sum(widths) + gap > narrow.MOST_ELEMENTS
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(threads.VARIABLE, str(count))
        patch.setattr(tuning, "PARALLEL_BYTES", 0)
        patch.setattr(tuning, "LEAST_TASK_BYTES", 64)
        assert program.narrow.ready() is not None
        check_rows(program, rows, widths, gap, phases)


@needs_llvmlite
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 1), (1, 0, 1)])
def test_arrays_of_every_type_are_split_with_and_without(
    dtype: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (3, 4099, sum(sizes))
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = np.random.default_rng(3).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)
    views = np.split(array, np.cumsum(sizes)[:-1], 2)
    for asked in ("1", "0"):
        monkeypatch.setenv(machine_code.VARIABLE, asked)
        outputs = [np.empty_like(view) for view in views]
        dml.split(array, sizes, 2, out=outputs)
        for pieces in (dml.split(array, sizes, 2), outputs):
            assert [p.tobytes() for p in pieces] == [v.tobytes() for v in views]


@pytest.mark.parametrize(
    ("widths", "rows"),
    [((1,) * 17, 9), ((1, 17), 9), ((6,), 9), ((1, 2), 1), ((7,) * 10, 9), ((0, 3), 9)],
)
def test_other_splits_are_numpys(widths: tuple[int, ...], rows: int) -> None:
    assert program_of(rows, widths).narrow is None


@needs_llvmlite
def test_a_loop_is_compiled_when_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "PATIENCE_BYTES", 1000)
    monkeypatch.setattr(narrow, "LEAST_ITEMS", 300)
    small, usual = (program_of(rows, (1, 2, 1)).narrow for rows in (99, 100))
    assert small is not None
    assert usual is not None
    assert [usual.ready() is None for _ in range(3)] == [True, True, False]
    assert small.ready() is None  # NumPy copies it even then.


@needs_llvmlite
def test_a_small_operator_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "PATIENCE_BYTES", 1 << 30)
    monkeypatch.setattr(narrow, "WORTH_BYTES", 400)
    for rows, waits in ((99, True), (100, False)):
        program = program_of(rows, (1, 2, 1))
        program.prepare()
        assert program.narrow is not None
        assert (program.narrow.ready() is None) == waits


@needs_llvmlite
def test_the_number_of_loops_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "MOST_LOOPS", len(narrow._engines) + 1)
    assert narrow.RowLoop(3, (1, 2)).after(1) is not None
    assert narrow.RowLoop(3, (2, 1)).after(1) is None


def test_a_compiled_operator_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "PATIENCE_BYTES", 1 << 30)
    tensor = dml.TensorDesc("UINT8", (1, 1, 1 << 17, 3))
    desc = dml.SplitOperatorDesc.from_sizes(tensor, axis=3, sizes=(1, 1, 1))
    array = np.arange(3 << 17, dtype=np.uint8).reshape(1, 1, -1, 3)
    operator = dml.Device("cpu").compile(desc)
    assert [p.tobytes() for p in operator(array)] == [array[..., c].tobytes() for c in range(3)]
    program = operator._plan.program
    assert isinstance(program, NumpyProgram)
    assert program.narrow is not None
    assert (program.narrow.loop._copy is None) == (find_spec("llvmlite") is None)


@pytest.mark.parametrize("lacking", ["absent", "broken", "old"])
def test_without_a_working_llvmlite_numpy_copies(
    lacking: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if lacking == "absent":
        monkeypatch.setattr(machine_code, "find_spec", lambda name: None)
    else:
        text = "raise OSError('no such library')" if lacking == "broken" else ""
        (tmp_path / "llvmlite").mkdir()
        (tmp_path / "llvmlite" / "__init__.py").write_text("")
        (tmp_path / "llvmlite" / "binding.py").write_text(text)
        loaded = {name for name in sys.modules if name.partition(".")[0] == "llvmlite"}
        for name in loaded | {"llvmlite", "llvmlite.binding"}:
            monkeypatch.setitem(sys.modules, name, None)  # at the end it removes the fake as well
            del sys.modules[name]
        monkeypatch.syspath_prepend(tmp_path)
    program = program_of(500, (1, 3))
    assert program.narrow is not None
    assert program.narrow.ready() is None
    check_rows(program, 500, (1, 3), 0, [0, 0])


def test_a_wrong_variable_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "off")
    with pytest.raises(dml.InvalidArgumentError, match="DMLSPLIT_FAST is 'off'; it must be 0 or 1"):
        program_of(2, (1, 1))


PROGRAM = """
import sys, numpy as np, dmlsplit as dml
a = np.zeros((1 << 20, 3), "u1")
for _ in range(3):
    dml.split(a, 3, 1)
assert "llvmlite" not in sys.modules
from dmlsplit.backends.cpu import narrow
narrow.PATIENCE_BYTES = 0
dml.split(a.reshape(-1), 3)
dml.split(np.zeros((1 << 10, 3 << 10), "u1"), 3, 1)
dml.split(a[:100], 3, 1)
assert "llvmlite" not in sys.modules
dml.split(a, 3, 1)
print("llvmlite" in sys.modules)
"""


@pytest.mark.parametrize("asked", ["", "0"])
def test_only_splits_that_pay_import_llvmlite(asked: str) -> None:
    done = ran(sys.executable, "-c", PROGRAM, env={machine_code.VARIABLE: asked})
    assert done.stderr == ""
    assert done.stdout.strip() == str(not asked and find_spec("llvmlite") is not None)


# Splits memory that ends with the last row's pieces: reading any later byte is a fault.
AT_THE_END = """
import ctypes, itertools, mmap, numpy as np
from dmlsplit.backends.cpu import narrow
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
end = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
protect = ctypes.CDLL(None, use_errno=True).mprotect
protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
assert protect(end, mmap.PAGESIZE, 0) == 0
forms = [(1, 1), (1, 1, 1), (1, 2), (1,) * 12, (2, 2, 4), (4, 12), (4, 4)]
for widths, gap in itertools.product(forms, (0, 1, 4, 12)):
    pitch, size = sum(widths) + gap, sum(widths)
    copy = narrow.RowLoop(pitch, widths).after(narrow.PATIENCE_BYTES + 1)
    for rows in (1, 2, 9, 64, 101):
        outputs = [np.empty(rows * width, "u1") for width in widths]
        copy(end - (rows - 1) * pitch - size, *[out.ctypes.data for out in outputs], rows)
print("done")
"""


@needs_llvmlite
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_nothing_after_the_last_row_is_read() -> None:
    done = ran(sys.executable, "-c", AT_THE_END)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@needs_llvmlite
def test_threads_may_compile_and_split_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, "2")
    array = np.random.default_rng(4).integers(0, 256, (1 << 21, 3), np.uint8)
    split_at_once(array, (1, 1, 1), calls=8)


# In a process of its own, without the threads of other libraries.
FORKS = """
import os, signal, threading, time, warnings
from dmlsplit.backends.cpu import narrow
warnings.simplefilter("ignore")
narrow.RowLoop(2, (1, 1)).after(narrow.PATIENCE_BYTES + 1)  # import it here

def compiles():
    for width in range(2, 16):
        narrow.RowLoop(2 * width, (width, width)).after(narrow.PATIENCE_BYTES + 1)

other = threading.Thread(target=compiles)
other.start()
time.sleep(0.02)
child = os.fork()
if child == 0:
    signal.alarm(60)  # it hangs
    os._exit(narrow.RowLoop(3, (1, 1, 1)).after(narrow.PATIENCE_BYTES + 1) is None)
other.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_llvmlite
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_during_compilation_can_compile() -> None:
    done = ran(sys.executable, "-c", FORKS)
    assert (done.stdout, done.stderr) == ("0\n", "")
