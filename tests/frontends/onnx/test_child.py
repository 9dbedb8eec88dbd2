"""One process infers the shapes of many models, and no model affects another."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from dmlsplit.errors import UnsupportedError
from dmlsplit.frontends.onnx import child
from dmlsplit.lint.discovery import scan_paths
from tests.support.onnx_graphs import node, resized

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals, forks and pipes of POSIX")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that a test starts; all must have ended at its end."""
    found: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        found.append(real(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    yield found
    assert all(process.returncode is not None for process in found)


Processes = list[subprocess.Popen[bytes]]


@pytest.fixture
def crash(tmp_path: Path) -> str:
    """A model that crashes onnx's process with SIGABRT."""
    content = resized([1, 4, 8, 8], node("Split", "x", "p q r", axis=1, num_outputs=2))
    onnx.save(content, tmp_path / "crash.onnx")
    return str(tmp_path / "crash.onnx")


@pytest.fixture
def good(tmp_path: Path) -> str:
    onnx.save(resized([1, 4, 8, 8]), tmp_path / "good.onnx")
    return str(tmp_path / "good.onnx")


@posix
def test_many_models_need_one_process(tmp_path: Path, started: Processes) -> None:
    for size in range(1, 6):
        onnx.save(resized([1, 4, size, 8]), tmp_path / f"{size}.onnx")
    files = [str(tmp_path / f"{size}.onnx") for size in range(1, 6)]
    found = scan_paths(files, infer_shapes=True).sites
    assert [site.shape for site in found] == [(1, 4, 2 * size, 16) for size in range(1, 6)]
    assert len(started) == 1


@posix
def test_a_crash_costs_one_model_and_one_process(good: str, crash: str, started: Processes) -> None:
    with child.kept() as kept:
        first = kept.answer(good, {})
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=r"^it ended its process with signal 6$"):
                kept.answer(crash, {})
            assert kept.answer(good, {}) == first
    assert len(started) == 3


@posix
def test_time_is_limited_for_each_model(
    good: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Processes
) -> None:
    endless = str(tmp_path / "endless.onnx")
    os.mkfifo(endless)
    with child.kept() as kept:
        first = kept.answer(good, {})
        monkeypatch.setattr(child, "SECONDS", 0.5)
        with pytest.raises(UnsupportedError, match=r"^it took over 0\.5 s$"):
            kept.answer(endless, {})
        # The fork has ended too, because nobody reads the pipe.
        with pytest.raises(OSError, match="No such device"):
            os.open(endless, os.O_WRONLY | os.O_NONBLOCK)
        monkeypatch.setattr(child, "SECONDS", 60)
        assert kept.answer(good, {}) == first
    assert len(started) == 2


@posix
def test_memory_is_limited_for_each_model(good: str, tmp_path: Path, started: Processes) -> None:
    huge = tmp_path / "huge.onnx"
    with huge.open("wb") as file:
        file.truncate(child.MEMORY_BYTES)
    with child.kept() as kept:
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=r"^MemoryError"):
                kept.answer(str(huge), {})
            assert kept.answer(good, {})
    assert len(started) == 1


def test_a_file_that_is_not_a_model_is_reported(tmp_path: Path, good: str) -> None:
    (tmp_path / "text.onnx").write_text("text")
    with child.kept() as kept:
        for name, why in ("text.onnx", "DecodeError: "), ("none.onnx", "FileNotFoundError: "):
            with pytest.raises(UnsupportedError, match=f"^{why}"):
                kept.answer(str(tmp_path / name), {})
        assert kept.answer(good, {})


@posix
@pytest.mark.parametrize("signal", [2, 15])
def test_an_interrupt_ends_the_process(signal: int, good: str, tmp_path: Path) -> None:
    """This holds even while a fork is working, which would otherwise continue."""
    endless = tmp_path / "endless.onnx"
    os.mkfifo(endless)
    code = (
        "import sys\nfrom dmlsplit.cli.terminal import interruptible\n"
        "from dmlsplit.frontends.onnx import child\n"
        "with interruptible(None), child.kept() as kept:\n"
        "    kept.answer(sys.argv[1], {}); print('ready', flush=True)\n"
        "    kept.answer(sys.argv[2], {})\n"
    )
    line = [sys.executable, "-c", code, good, str(endless)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as caller:
        assert caller.stdout
        assert caller.stdout.readline() == b"ready\n"
        end = opened(endless)
        caller.send_signal(signal)
        assert caller.wait(30)
    with pytest.raises(BrokenPipeError):
        os.write(end, b"x")
    os.close(end)


def opened(pipe: Path) -> int:
    """The write end of a pipe, as soon as another process reads it."""
    until = time.monotonic() + 30
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.01)
