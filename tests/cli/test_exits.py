"""How every command ends: with closed streams, a full disk, and interrupts at any step."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.command import FLAGS, ran, save, shell, started
from tests.support.fixtures import Patch
from tests.support.models import one_split

# Commands that succeed, one of each kind of output.
LINES = [
    "validate m.onnx",
    "validate m.onnx --format json",
    "explain m.onnx --gpu H200",
    "levels",
    "devices --format json",
    "run a.npy --axis 0 --count 2 --overwrite",
    "--help",
    "validate --help",
    "--version",
]
OUTPUT = "dmlsplit: error: standard output"


def ended(line: str, streams: str) -> tuple[int, str, str]:
    process = shell(f"dmlsplit {line} {streams}")
    return process.returncode, process.stdout, process.stderr


@pytest.fixture
def files(here: Path, monkeypatch: Patch) -> Path:
    """A folder with the files that `LINES` name."""
    monkeypatch.setenv("DMLSPLIT_NATIVE", "0")  # else `devices` says that it was not compiled
    save("m.onnx", one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0))
    np.save("a.npy", np.arange(6.0))
    return here


@pytest.mark.parametrize("line", LINES)
def test_a_closed_standard_output_is_an_error_and_no_other_closed_stream_is(
    line: str, files: Path
) -> None:
    """Exit status 1 would mean that a split is refused."""
    assert ended(line, ">&-") == (2, "", f"{OUTPUT}: Bad file descriptor\n")
    assert ended(line, ">&- 2>&- <&-") == (2, "", "")
    for closed in ("2>&-", "<&-"):
        status, out, err = ended(line, closed)
        assert (status, out != "", err) == (0, True, "")


@pytest.mark.parametrize("line", LINES)
def test_a_full_disk_is_reported_in_one_line(line: str, files: Path) -> None:
    assert ended(line, ">/dev/full") == (2, "", f"{OUTPUT}: No space left on device\n")


def test_a_report_in_a_file_needs_no_standard_output(files: Path) -> None:
    process = shell("dmlsplit validate m.onnx -o report >&-")
    assert (process.returncode, process.stderr) == (0, "")
    assert "1 split in 1 file" in Path("report").read_text()


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_wrong_usage_exits_with_2_even_with_closed_streams(streams: str, files: Path) -> None:
    assert shell(f"dmlsplit levels --format xml {streams}").returncode == 2


# Interrupts. We cannot catch one before our first line or at the end of the interpreter: during
# Python's own start, the imports of `site`, and those of `runpy` or of the script that pip writes.

# Sends itself a signal as the n-th import of a module begins.
INTERRUPTED = """
import os, signal, sys
number, at = int(sys.argv.pop(1)), int(sys.argv.pop(1))
import dmlsplit.__main__ as command
class Finder:
    seen = 0
    def find_spec(self, name, path=None, target=None):
        Finder.seen += 1
        if Finder.seen == at:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
sys.exit(command.main())
"""
STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("import_number", [1, 2, 3, 5, 8, 13, 40, 80, 120, 160])
def test_an_interrupt_in_any_import_is_reported_in_one_line(
    import_number: int, number: signal.Signals, files: Path
) -> None:
    line = ["run", "a.npy", "--axis", "0", "--count", "2"]
    child = started(str(int(number)), str(import_number), *line, folder=files, program=INTERRUPTED)
    out, err = child.communicate()
    assert (child.returncode, err) == (128 + number, b"dmlsplit: interrupted\n"), (out, err)


def test_nothing_but_forks_is_imported_before_the_interrupt_handler_is_set() -> None:
    """No module of Python that is not loaded at the start comes before it either."""
    program = "import sys; before = set(sys.modules); import dmlsplit.__main__; "
    program += "print(*set(sys.modules) - before)"
    module_names = ran(sys.executable, "-S", "-c", program, check=True).stdout.split()
    # `forks` makes the lock of all later imports; it imports nothing that is not loaded.
    python = set(module_names) - {"dmlsplit", "dmlsplit.__main__", "dmlsplit.forks"}
    assert python <= {"os", "posixpath", "genericpath", "stat", "_stat", "_signal", "abc", "_abc",
                      "_collections_abc", "os.path", "ntpath", "nt", "atexit"}  # fmt: skip


@pytest.mark.parametrize("number", STOPS)
def test_an_interrupt_of_a_command_is_reported_in_one_line(
    number: signal.Signals, files: Path
) -> None:
    """All imports are done: the command waits for a pipe that nobody opens at the other end."""
    os.mkfifo("pipe")
    child = started("validate", *FLAGS, "-o", "pipe", folder=files)
    wait_for_open(child.pid, files / "pipe")
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (128 + number, b"dmlsplit: interrupted\n")


def wait_for_open(pid: int, path: Path) -> None:
    """Wait until a process sleeps in open()."""
    where = Path(f"/proc/{pid}/wchan")
    end = time.monotonic() + 60
    while time.monotonic() < end and not where.read_text().startswith(("wait_for_partner", "fifo")):
        time.sleep(0.01)


@pytest.mark.parametrize("number", STOPS)
def test_ignored_signals_stay_ignored(number: signal.Signals, files: Path) -> None:
    """Before the command, during it, and after it."""
    program = f"""if True:
        import os, signal, sys
        def kill(): os.kill(os.getpid(), {int(number)})
        signal.signal({int(number)}, signal.SIG_IGN)
        import dmlsplit.__main__ as command, dmlsplit.cli.levels as levels
        sys.argv[1:], honest = ['levels'], levels.level_table
        levels.level_table = lambda: kill() or honest()
        kill(); status = command.main(); kill()
        sys.exit(status)
    """
    child = started(folder=files, program=program)
    out, err = child.communicate()
    assert (child.returncode, err) == (0, b"")
    assert out.startswith(b"level ")
