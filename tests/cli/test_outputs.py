"""No option that names an output overwrites a file that the command reads, whatever its path."""

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlsplit.cli import build_parser, main
from dmlsplit.models import discovery
from tests.support.command import every_parser, ran, refused, save
from tests.support.dxdispatch import model as dispatched
from tests.support.dxdispatch import values
from tests.support.fixtures import Capsys, Patch
from tests.support.models import one_split, parsed
from tests.support.openvino_files import variadic, weights

# The words that the help has for values: names of files to write, and those of no file to write.
WRITES = {"FILE", "OUT.onnx|DIR", "DIR"}
NEITHER = {*"PATH PATH|RULE-ID|HRESULT BUILD|VERSION INPUT L N S A TYPE BUILD VERSION".split()}
NEITHER |= {*"NAME NAME=N 1,1,6,2 2,1,3".split()}
NEITHER |= {"axis", "device"}

VALIDATE = "validate --windows 19041"
# A command that reads a file, with the option that writes last, and that file.
CASES = {
    "report on the model": (f"{VALIDATE} m.onnx --output", "m.onnx"),
    "report beside a fixed model": (f"{VALIDATE} m.onnx --write-fixed f.onnx --output", "m.onnx"),
    "report on a folder": ("validate sub --output", "sub/m.onnx"),
    "report on a pattern": ("validate s*/* --output", "sub/m.onnx"),
    "report on what is broken": ("validate b.onnx --output", "b.onnx"),
    "report on external data": ("validate w.onnx --output", "w.data"),
    "report on data like text": ("validate t.onnx --output", "t.data"),
    "report on a constant's": ("validate c.onnx --output", "c.data"),
    "report on weights of IR like text": ("validate it.xml --output", "it.bin"),
    "report on IR": ("validate ir.xml --output", "ir.xml"),
    "report on its weights": ("validate ir.xml --output", "ir.bin"),
    "report on DxDispatch": ("validate d.json --output", "d.json"),
    "report on its source": ("validate d.json --output", "sub/d.txt"),
    "report on a broken one's": ("validate db.json --output", "sub/d.txt"),
    "SARIF on the model": ("validate m.onnx --sarif", "m.onnx"),
    "SARIF in a folder": ("validate sub --sarif", "sub/m.onnx"),
    "JUnit on external data": ("validate w.onnx --junit", "w.data"),
    "annotations on weights": ("validate ir.xml --github", "ir.bin"),
    "a baseline that is the model": ("validate m.onnx --baseline", "m.onnx"),
    "fixed on the model": (f"{VALIDATE} m.onnx --write-fixed", "m.onnx"),
    "fixed on its data": (f"{VALIDATE} w.onnx --write-fixed", "w.data"),
    "fixed on data like text": (f"{VALIDATE} t.onnx --write-fixed", "t.data"),
    "picture on the model": ("explain m.onnx --svg", "m.onnx"),
    "picture on a source": ("explain d.json --svg", "sub/d.txt"),
    "picture on weights": ("explain ir.xml --svg", "ir.bin"),
}


def test_every_option_that_names_an_output_file_has_a_case() -> None:
    """Add a new word for values to one of the sets; if it names a file, also to the cases above."""
    value_options = [
        (action.metavar or action.dest, parser.prog.removeprefix("dmlsplit "), action)
        for parser in every_parser(build_parser())
        for action in parser._actions
        if action.nargs != 0 and not action.choices
    ]
    assert {word for word, *_ in value_options} == WRITES | NEITHER
    writing = {
        (name, action.option_strings[-1]) for word, name, action in value_options if word in WRITES
    }
    own_tests = {("run", "--output"), ("selftest", "--output")}  # own tests; it reads no file
    assert {
        (line.split()[0], line.split()[-1]) for line, _ in CASES.values()
    } == writing - own_tests


@pytest.fixture
def files(here: Path) -> Path:
    """Models with weights."""
    save("m.onnx", one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0))
    save("sub/m.onnx", one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0))
    Path("b.onnx").write_text("broken")
    array = np.linspace(1, 2, 5000, dtype="f4")
    for name, data in (("w", array.tobytes()), ("t", b"A" * 20000), ("c", b"A" * 20000)):
        content = one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0)
        external_tensor = TensorProto(name="w", dims=[5000], data_type=TensorProto.FLOAT)
        external_tensor.data_location = TensorProto.EXTERNAL
        external_tensor.external_data.add(key="location", value=f"{name}.data")
        if name == "c":
            content.graph.node.append(
                helper.make_node("Constant", [], ["c"], value=external_tensor)
            )
        else:
            content.graph.initializer.append(external_tensor)
        save(f"{name}.onnx", content)
        Path(f"{name}.data").write_bytes(data)
    Path("it.bin").write_bytes(b"A" * 20000)
    Path("it.xml").write_text(variadic())
    Path("ir.xml").write_text(variadic())
    Path("ir.bin").write_bytes(weights())
    Path("sub/d.txt").write_text("source")
    sources = {"S": values("UINT8", {"sourcePath": "sub\\d.txt"}), "T": 1, "U": {}}
    Path("d.json").write_text(json.dumps(dispatched(resources=sources)))
    Path("db.json").write_text(json.dumps(dispatched(resources=sources, dispatchables={"cut": 1})))
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
    line = [*VALIDATE.split(), "h.onnx", "--overwrite", "--write-fixed", "out.onnx"]
    assert main(line) == status
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
    file_paths = (Path(root, name) for root, _, names in os.walk(".") for name in names)
    return {str(path): (path.stat().st_ino, path.read_bytes()) for path in file_paths}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_an_input_is_never_overwritten(case: str, name: str, files: Path, capsys: Capsys) -> None:
    line, read = CASES[case]
    output = NAMES[name](Path(read))
    before = tree()
    refused(capsys, f"{line} {output}", lines=None)
    assert tree() == before


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("flags", ["", "--overwrite"])
def test_a_piece_never_overwrites_the_input(
    flags: str, link: Callable[[Path, Path], None], here: Path, capsys: Capsys
) -> None:
    np.save("a.npy", np.arange(6.0))
    Path("out").mkdir()
    link(Path("out/a_0.npy"), Path("a.npy").absolute())
    before = tree()
    message = refused(capsys, f"run a.npy --axis 0 --count 2 -o out {flags}")
    assert "a_0.npy is the input a.npy. Fix: name another output" in message
    assert tree() == before


def test_a_report_never_replaces_a_file_that_is_not_text(files: Path, capsys: Capsys) -> None:
    """It does not replace a model that is not judged either, such as one that will be written."""
    shutil.copy("m.onnx", "other.onnx")
    before = tree()
    message = refused(capsys, "validate m.onnx -o other.onnx")
    assert "other.onnx holds binary data; text must not replace it. Fix: name another" in message
    assert tree() == before
    Path("report").write_text("an old report, with ümlauts and \x1b[31mcolours")
    assert main(["validate", "m.onnx", "-o", "report"]) == 0
    assert "1 split in 1 file" in Path("report").read_text()


# Standard output, devices and pipes.


def test_a_hyphen_is_standard_output_except_for_write_fixed(files: Path, capsys: Capsys) -> None:
    assert main(["validate", "m.onnx"]) == 0
    report = capsys.readouterr().out
    assert main(["validate", "m.onnx", "-o", "-"]) == 0
    assert capsys.readouterr().out == report
    assert main(["explain", "m.onnx", "--svg", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg ")
    for name in ("-", "f.xml"):
        message = refused(capsys, f"{VALIDATE} m.onnx --write-fixed {name}")
        assert f"--write-fixed is '{name}'; it must be a file whose name ends in .onnx" in message
    assert not Path("-").exists()


def test_explain_says_that_there_are_no_splits_and_draws_none(here: Path, capsys: Capsys) -> None:
    save("m.onnx", parsed("(float[6] x) => (float[6] y) { y = Relu (x) }"))
    assert main(["explain", "m.onnx"]) == 0
    assert capsys.readouterr() == ("", "dmlsplit: note: no splits found\n")
    assert main(["explain", "m.onnx", "--svg", "m.svg"]) == 2
    assert "--svg draws one split; no splits found. Fix: " in capsys.readouterr().err
    assert not Path("m.svg").exists()


@pytest.mark.parametrize(("command", "option"), [("validate", "-o"), ("explain", "--svg")])
def test_a_device_is_written_to_and_a_full_device_is_named(
    command: str, option: str, files: Path, capsys: Capsys
) -> None:
    assert main([command, "m.onnx", option, "/dev/null"]) == 0
    message = refused(capsys, f"{command} m.onnx {option} /dev/full")
    assert message == "dmlsplit: error: /dev/full: No space left on device\n"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_report_to_dev_stdout_is_appended_and_the_file_is_not_replaced(
    name: str, files: Path
) -> None:
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


def test_an_output_that_is_a_circular_or_broken_link_is_refused_in_one_line(
    files: Path, capsys: Capsys
) -> None:
    Path("circle.onnx").symlink_to("circle.onnx")
    Path("link.onnx").symlink_to("no/such/f.onnx")
    for option in ("-o", "--write-fixed"):
        assert "circle.onnx: " in refused(capsys, f"{VALIDATE} m.onnx {option} circle.onnx")
        message = refused(capsys, f"{VALIDATE} m.onnx {option} link.onnx")
        assert re.search(r"error: link.onnx: is a link to /.*/no/such/f.onnx, in a folder", message)
    assert Path("circle.onnx").is_symlink()
    assert Path("link.onnx").is_symlink()


def test_a_written_model_replaces_another_only_with_overwrite(files: Path, capsys: Capsys) -> None:
    Path("old.onnx").write_text("old")
    line = f"{VALIDATE} r.onnx --write-fixed old.onnx"
    save("r.onnx", one_split(TensorProto.INT8, (6, 4), sizes=(2, 4), axis=0))
    assert "old.onnx exists; it is not replaced. Fix: add --overwrite" in refused(capsys, line)
    assert Path("old.onnx").read_text() == "old"
    assert main([*line.split(), "--overwrite"]) == 0
    assert len(onnx.load("old.onnx").graph.node) > 2
    assert "applies to --write-fixed only" in refused(capsys, "validate m.onnx --overwrite")


def test_a_full_disk_is_reported_with_the_name_of_the_written_model(
    files: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save("r.onnx", one_split(TensorProto.INT8, (6, 4), sizes=(2, 4), axis=0))
    monkeypatch.setattr(Path, "write_bytes", full)
    message = refused(capsys, f"{VALIDATE} r.onnx --write-fixed f.onnx")
    assert message == "dmlsplit: error: f.onnx: No space left on device\n"


@pytest.mark.parametrize(
    "line", ["run {}/a.npy --axis 0 --count 2", "validate {}/m.onnx -o report"]
)
def test_a_deleted_current_folder_is_named_in_the_error(
    line: str, files: Path, capsys: Capsys
) -> None:
    np.save("a.npy", np.arange(6.0))
    Path("gone").mkdir()
    os.chdir("gone")
    (files / "gone").rmdir()
    message = refused(capsys, line.format(files))
    assert message == "dmlsplit: error: the current folder: No such file or directory\n"


def test_a_picture_on_the_model_is_refused_before_the_scan(
    files: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(discovery, "scan_paths", None)
    assert "m.onnx is the input" in refused(capsys, "explain m.onnx --svg m.onnx")
