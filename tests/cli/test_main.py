"""The command line as a whole: usage, help, pipes, terminals, interrupts, large models."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import onnx
import pytest

from dmlsplit.cli import build_parser
from tests.support import networks
from tests.support.command import FLAGS, ROOT, every_parser, ours, ran, save, sparse_model, started
from tests.support.models import every_verdict

PARSERS = {parser.prog: parser for parser in every_parser(build_parser())}


def test_the_examples_in_the_help_of_every_command_can_be_parsed() -> None:
    parser = build_parser()
    for command in PARSERS.values():
        text = (command.description or "").replace("\\\n", " ")
        lines = [line.strip() for line in text.splitlines() if line.strip().startswith("dmlsplit ")]
        assert lines
        for line in lines:
            if line == "dmlsplit COMMAND --help":
                continue
            parser.parse_args(line.partition(" > ")[0].replace("'", "").split()[1:])


# Terminals, pipes and interrupts.


def on_a_terminal(
    *arguments: str, folder: Path, columns: int = 80, program: str | None = None, **environment: str
) -> str:
    """What a command, or a `program` with its arguments, shows on a terminal."""
    pty, termios = map(pytest.importorskip, ("pty", "termios"))  # Windows has neither
    our_end, terminal_end = pty.openpty()
    termios.tcsetwinsize(terminal_end, (24, columns))
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    child = started(
        *arguments,
        folder=folder,
        program=program,
        stdout=terminal_end,
        stderr=terminal_end,
        env={**inherited, "TERM": "xterm", "PYTHONPATH": str(ROOT), **environment},
    )
    os.close(terminal_end)
    output = b""
    with suppress(OSError):  # at the end, on Linux
        while block := os.read(our_end, 65536):
            output += block
    child.wait()
    os.close(our_end)
    return output.decode()


def test_output_is_coloured_only_on_a_terminal_without_no_color_or_term_dumb(here: Path) -> None:
    line = ["validate", *FLAGS, "--verbose"]
    assert "\x1b[1;32mok\x1b[0m runs on DirectML" in on_a_terminal(*line, folder=here)
    assert "\x1b" not in on_a_terminal(*line, folder=here, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*line, folder=here, TERM="dumb")
    out, _ = started(*line, folder=here).communicate()
    assert b"\x1b" not in out


def test_text_is_as_wide_as_the_terminal(here: Path) -> None:
    def widest(*line: str, columns: int) -> int:
        plain = {"NO_COLOR": "1", "COLUMNS": ""}
        output = on_a_terminal(*line, folder=here, columns=columns, **plain)
        return max(map(len, (output or Path("report").read_text()).splitlines()))

    line = ["validate", *"--data-type FLOAT32 --axis 0 --sizes 60 --split".split(), "2" + ",1" * 58]
    line.append("--verbose")
    narrow, wide = (widest(*line, columns=columns) for columns in (80, 150))
    assert narrow == 80
    assert 140 < wide <= 150
    assert widest(*line, "-o", "report", columns=150) == 80
    explained = ["explain", *line[1:-1], "--gpu", "H200"]
    assert 80 < widest(*explained, columns=150) <= 150
    out, _ = started(*line, folder=here, env={**ours(), "COLUMNS": "150"}).communicate()
    assert max(map(len, out.decode().splitlines())) == 80


def test_a_name_is_cut_to_the_width_of_the_terminal_and_is_whole_in_a_pipe(here: Path) -> None:
    save("m.onnx", networks.layers(24))
    line = ["validate", "m.onnx", "--windows", "19041"]
    output = on_a_terminal(*line, folder=here, columns=60, NO_COLOR="1", COLUMNS="")
    (cut,) = (line_shown for line_shown in output.splitlines() if line_shown.startswith("  -->"))
    assert cut == "  --> m.onnx main_graph/en.../attention/qkv/Split (+23 more)"
    out, _ = started(*line, folder=here).communicate()
    whole = "  --> m.onnx main_graph/encoder/layer.0/attention/qkv/Split (+23 more)"
    assert whole in out.decode().splitlines()


# The command line, but its bars appear at once, because no scan takes as long on every machine.
WITHOUT_DELAY = """
from dmlsplit.cli import main, terminal
terminal.BAR_SECONDS = 0.001
main()
"""


def test_scans_show_their_progress_on_a_terminal_only(here: Path) -> None:
    save("model.onnx", every_verdict())
    line, at_once = ["validate", ".", "-o", "report"], {"TQDM_MININTERVAL": "0"}
    output = on_a_terminal(*line, folder=here, program=WITHOUT_DELAY, **at_once)
    assert re.search(r"scan: +\d+%", output)
    with started(*line, folder=here, program=WITHOUT_DELAY, env=ours() | at_once) as child:
        assert child.stderr
        assert child.stderr.read() == b""


LONG = """
import time
from dmlsplit.cli import terminal
terminal.BAR_SECONDS = 0.01
with terminal.progress_bar("scan"):
    time.sleep(0.5)
"""


def test_one_long_file_shows_a_bar_that_is_cleared_at_the_end(here: Path) -> None:
    output = on_a_terminal(folder=here, program=LONG)
    bars = output.split("\r")
    assert sum(bar.startswith("scan: ") for bar in bars) > 1
    assert bars[-1].strip() == ""


def test_a_pipe_that_closes_early_does_not_change_the_exit_status(here: Path) -> None:
    for name in "abcdefgh":
        save(f"{name}.onnx", every_verdict())
    line = ["validate", ".", "--format", "json", "--feature-level", "2_0"]
    with started(*line, folder=here) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 1


# Large models.


# A child's ru_maxrss counts its parent's memory before exec; VmHWM does not.
MEASURE = """
import sys
from dmlsplit.cli import main
status = main(sys.argv[1:])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
read = next(line.split()[1] for line in open("/proc/self/io") if line.startswith("rchar"))
print(status, read, int(peak) * 1024, file=sys.stderr)
"""


def measured(*arguments: str, folder: Path) -> tuple[int, int, str]:
    """The bytes that a command which accepts reads, its peak resident bytes, and its output."""
    process = ran(sys.executable, "-c", MEASURE, *arguments, cwd=folder, check=True)
    status, read, peak = process.stderr.split()
    assert status == "0"
    return int(read), int(peak), process.stdout


def test_a_gigabyte_of_weights_is_not_read_and_costs_little_memory(here: Path) -> None:
    sparse_model(here / "small.onnx", 4)
    sparse_model(here / "large.onnx", 1 << 30)
    assert onnx.load(here / "small.onnx").graph.initializer[0].name == "w"
    few, base, _ = measured("validate", "small.onnx", folder=here)
    read, peak, out = measured("validate", "large.onnx", folder=here)
    assert "1 split in 1 file" in out
    assert read < few + (1 << 20)
    assert peak < base + (8 << 20)
