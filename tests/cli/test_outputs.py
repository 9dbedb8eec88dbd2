"""No option that names an output overwrites a file that the command reads, whatever its path."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from dmlsplit.cli import build_parser, main
from tests.support.command import leaves, ran, refused, save
from tests.support.dxdispatch_models import model as dispatched
from tests.support.models import single
from tests.support.openvino_files import variadic, weights

pytestmark = pytest.mark.usefixtures("forked_children")

TARGET = "--data-type --sizes --axis --split --dim --feature-level --directml --windows --via"
# Options with a value, by command: those that name files to read, files to write, or no files.
READS = {
    "validate": "PATH --input",
    "explain": "PATH",
    "run": "INPUT",
    "conformance probe": "--directml --dxdispatch",
    "conformance check": "OBSERVED.json",
}
WRITES = {
    "validate": "--output --write-fixed",
    "explain": "--svg",
    "run": "--output",
    "conformance write": "DIR",
    "conformance probe": "--output",
}
NEITHER = {
    "validate": f"{TARGET} --ort-version --format --fail-on --allow",
    "explain": f"{TARGET} --ort-version --format --node --gpu",
    "levels": "--format",
    "run": "--axis --split --count --device --format --scheduler --block-bytes",
    "conformance probe": "--adapter --timeout",
    "conformance check": "--format",
    "devices": "--format",
    "completion": "shell",
}

VALIDATE = "validate --windows 19041"
FEED = f"{VALIDATE} m.onnx --input feed.npz"
PROBE = "conformance probe --directml lib.dll --dxdispatch dxdispatch.exe -o"
# An option that writes, a command that reads a file, and that file. The option comes last.
CASES = {
    "report on the model": ("validate --output", f"{VALIDATE} m.onnx -o", "m.onnx"),
    "report on a folder": ("validate --output", "validate sub -o", "sub/m.onnx"),
    "report on a pattern": ("validate --output", "validate s*/* -o", "sub/m.onnx"),
    "report on what is broken": ("validate --output", "validate b.onnx -o", "b.onnx"),
    "report on external data": ("validate --output", "validate w.onnx -o", "w.data"),
    "report on IR": ("validate --output", "validate ir.xml -o", "ir.xml"),
    "report on its weights": ("validate --output", "validate ir.xml -o", "ir.bin"),
    "report on DxDispatch": ("validate --output", "validate d.json -o", "d.json"),
    "report on the inputs": ("validate --output", f"{FEED} --write-fixed f.onnx -o", "feed.npz"),
    "fixed on the model": ("validate --write-fixed", f"{VALIDATE} m.onnx --write-fixed", "m.onnx"),
    "fixed on its data": ("validate --write-fixed", f"{VALIDATE} w.onnx --write-fixed", "w.data"),
    "fixed on the inputs": ("validate --write-fixed", f"{FEED} --write-fixed", "feed.npz"),
    "picture on the model": ("explain --svg", "explain m.onnx --svg", "m.onnx"),
    "picture on weights": ("explain --svg", "explain ir.xml --svg", "ir.bin"),
    "observation on the library": ("conformance probe --output", PROBE, "lib.dll"),
    "observation on the program": ("conformance probe --output", PROBE, "dxdispatch.exe"),
}


def taking(parser: argparse.ArgumentParser) -> set[tuple[str, str]]:
    """A command with each of its options and arguments that take a value."""
    return {
        (
            parser.prog.removeprefix("dmlsplit "),
            a.option_strings[-1] if a.option_strings else str(a.metavar or a.dest),
        )
        for a in parser._actions
        if a.nargs != 0
    }


def named(table: dict[str, str]) -> set[tuple[str, str]]:
    return {(command, option) for command, options in table.items() for option in options.split()}


def test_every_option_says_whether_it_names_a_file() -> None:
    """Add a new option to one of the tables; if it writes, also to the cases below."""
    found = set.union(*map(taking, leaves(build_parser())))
    assert found == named(READS) | named(WRITES) | named(NEITHER)
    folders = {("run", "--output"), ("conformance write", "DIR")}  # They have their own tests.
    tried = {tuple(option.rsplit(" ", 1)) for option, _, _ in CASES.values()}
    assert tried == named(WRITES) - folders


@pytest.fixture
def files(here: Path) -> Path:
    """Models with weights and inputs for them."""
    save("m.onnx", single(TensorProto.FLOAT, (6, 4), (2, 4), 0))
    save("sub/m.onnx", single(TensorProto.FLOAT, (6, 4), (2, 4), 0))
    Path("b.onnx").write_text("broken")
    stored = single(TensorProto.FLOAT, (6, 4), (2, 4), 0)
    array = np.linspace(1, 2, 5000, dtype="f4")
    stored.graph.initializer.append(numpy_helper.from_array(array, "w"))
    onnx.save(stored, "w.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    Path("ir.xml").write_text(variadic())
    Path("ir.bin").write_bytes(weights())
    Path("d.json").write_text(json.dumps(dispatched()))
    np.savez("feed.npz", x=np.ones((6, 4), "f4"))
    Path("lib.dll").write_bytes(b"MZ")
    Path("dxdispatch.exe").write_bytes(b"MZ")
    return here


@pytest.mark.parametrize(
    ("location", "status"), [("a\0b", 0), ("n" * 5000, 0), ("/", 2), ("..", 2), ("", 2)]
)
def test_a_hostile_name_of_weights_gives_no_traceback(
    location: str, status: int, files: Path
) -> None:
    content = onnx.load("w.onnx", load_external_data=False)
    (entry,) = (e for e in content.graph.initializer[0].external_data if e.key == "location")
    entry.value = location
    Path("h.onnx").write_bytes(content.SerializeToString())
    Path("out.onnx").write_text("old")
    assert main([*VALIDATE.split(), "h.onnx", "--write-fixed", "out.onnx"]) == status
    assert (Path("out.onnx").read_bytes() == b"old") == bool(status)


def symlinked(file: Path) -> str:
    Path("link").symlink_to(file)
    return "link"


def hard_linked(file: Path) -> str:
    Path("hard").hardlink_to(file)
    return "hard"


def through_a_folder(file: Path) -> str:
    Path("folder").symlink_to(file.parent.resolve())
    return f"folder/{file.name}"


NAMES: dict[str, Callable[[Path], str]] = {
    "same": str,
    "absolute": lambda file: str(file.absolute()),
    "dots": lambda file: f"./sub/../{file}",
    "missing folder": lambda file: f"no/such/../../{file}",
    "symlink": symlinked,
    "hard link": hard_linked,
    "folder link": through_a_folder,
}


def tree() -> dict[str, tuple[int, bytes]]:
    """The inode and the bytes of every file of the current folder."""
    found = (Path(root, name) for root, _, names in os.walk(".") for name in names)
    return {str(path): (path.stat().st_ino, path.read_bytes()) for path in found}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_an_input_is_never_overwritten(
    case: str, name: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, line, read = CASES[case]
    output = NAMES[name](Path(read))
    before = tree()
    refused(capsys, f"{line} {output}", lines=None)
    assert tree() == before


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("flags", ["--format npy", "--format zarr --overwrite", "--overwrite"])
def test_a_piece_never_overwrites_the_input(
    flags: str, link: Callable[[Path, Path], None], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = "zarr" if "zarr" in flags else "npy"
    np.save("a.npy", np.arange(6.0))
    Path("out").mkdir()
    link(Path(f"out/a_0.{form}"), Path("a.npy").absolute())
    before = tree()
    said = refused(capsys, f"run a.npy --axis 0 --count 2 -o out {flags}")
    assert f"a_0.{form} is the input a.npy; it is not replaced" in said
    assert tree() == before


def test_a_report_never_replaces_a_file_that_is_not_text(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not replace a model that is not judged either, such as one that will be written."""
    shutil.copy("m.onnx", "other.onnx")
    before = tree()
    said = refused(capsys, "validate m.onnx -o other.onnx")
    assert "other.onnx holds binary data; text must not replace it. Fix: name another" in said
    assert tree() == before
    Path("report").write_text("an old report, with ümlauts and \x1b[31mcolours")
    assert main(["validate", "m.onnx", "-o", "report"]) == 0
    assert "1 split in 1 file" in Path("report").read_text()


# Standard output, devices and pipes.


def test_a_hyphen_is_standard_output(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "m.onnx"]) == 0
    shown = capsys.readouterr().out
    assert main(["validate", "m.onnx", "-o", "-"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["explain", "m.onnx", "--svg", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg ")
    assert "is binary" in refused(capsys, f"{VALIDATE} m.onnx --write-fixed -")
    assert not Path("-").exists()


@pytest.mark.parametrize(("command", "option"), [("validate", "-o"), ("explain", "--svg")])
def test_a_device_is_written_to_and_a_full_device_is_named(
    command: str, option: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "m.onnx", option, "/dev/null"]) == 0
    said = refused(capsys, f"{command} m.onnx {option} /dev/full")
    assert said == "dmlsplit: error: /dev/full: No space left on device\n"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_name_of_standard_output_is_written_to_and_not_replaced(name: str, files: Path) -> None:
    """The shell has the file open, and earlier and later output belong into the same file."""
    line = [sys.executable, "-m", "dmlsplit", "validate", "m.onnx", "-o", name]
    Path("log").write_text("before\n")
    inode = Path("log").stat().st_ino
    with Path("log").open("a") as log:
        assert ran(*line, stdout=log).returncode == 0
        log.write("after\n")
    assert Path("log").stat().st_ino == inode
    lines = Path("log").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert any("1 split in 1 file" in line for line in lines)


def test_a_reader_that_leaves_early_keeps_the_verdict(files: Path) -> None:
    line = ["validate", "refused.onnx", "--feature-level", "1_0", "-o", "/dev/stdout"]
    save("refused.onnx", single(TensorProto.INT64, (6, 4), (2, 4), 0))
    ours, theirs = os.pipe()
    os.close(ours)
    done = ran(sys.executable, "-m", "dmlsplit", *line, stdout=theirs)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_link_in_a_circle_is_one_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("circle").symlink_to("circle")
    for option in ("-o", "--write-fixed"):
        assert "circle: " in refused(capsys, f"{VALIDATE} m.onnx {option} circle")
    assert Path("circle").is_symlink()
