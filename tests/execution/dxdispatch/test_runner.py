"""DxDispatch models run here as on Windows."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlsplit import InvalidArgumentError, OutOfMemoryError
from dmlsplit.cli import main
from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch import (
    A_INTO_B_C_D,
    EXAMPLE,
    F32,
    Run,
    counting,
    dispatch,
    model,
    prints,
    split_desc,
    tensor,
    values,
    writes,
    zeros,
)
from tests.support.fixtures import Capsys, Patch


def test_the_example_of_dxdispatch_prints_the_same_as_on_windows(ran: Run) -> None:
    pieces = {"Out1": "1, 2", "Out2": "3, 4", "Out3": "5, 6"}
    assert ran(EXAMPLE) == [f"Resource '{name}': {text}" for name, text in pieces.items()]


# Every published shape runs in tests/peers/test_array_splits.py.
@pytest.mark.parametrize(
    "values_of", [counting, lambda count, *_: {"valueCount": count, "value": 1}]
)
def test_a_resource_takes_the_memory_that_commands_use(
    values_of: Callable[..., dict[str, Any]], ran: Run, tmp_path: Path
) -> None:
    """A billion values of which six are read, and as many that nobody reads."""
    large = {name: values(F32, values_of(10**9, 1, 1)) for name in "AX"}
    last = {"name": "A", "elementOffset": 8}
    commands = [
        dispatch(**A_INTO_B_C_D),
        dispatch(**{**A_INTO_B_C_D, "InputTensor": last}),
        prints("D"),
    ]
    tracemalloc.start()
    try:
        (line,) = ran(model(resources=large, commands=commands))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert line == f"Resource 'D': {'12, 13, 14' if values_of is counting else '1, 1, 1'}"
    assert peak < 1 << 20
    assert run(tmp_path / "model.json", "cpu").resources["A"].size == 14


def test_a_resource_that_does_not_fit_in_memory_is_named(ran: Run, monkeypatch: Patch) -> None:
    def full(*arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("numpy.zeros", full)
    with pytest.raises(
        OutOfMemoryError, match="resource 'A' needs 24 bytes, which do not fit in memory"
    ):
        ran(model())
    behind = {**values(F32, counting(6, 1, 1)), "initialValuesOffsetInBytes": 64, "sizeInBytes": 88}
    with pytest.raises(
        OutOfMemoryError, match="resource 'A' needs 64 bytes, which do not fit in memory"
    ):
        ran(model(resources={"A": behind}))


def test_operators_other_than_split_may_be_defined_but_not_dispatched(
    ran: Run, refused: Callable[[Any], str]
) -> None:
    join = {"join": {"type": "DML_OPERATOR_JOIN", "desc": {}}}
    assert len(ran(model(dispatchables=join))) == 3
    message = refused(model(dispatchables=join, commands=[dispatch("join")]))
    assert "dispatches 'join', a 'DML_OPERATOR_JOIN'; only DML_OPERATOR_SPLIT is" in message


# A split whose input is bound when it is initialized, not when it is dispatched.
OWNED = split_desc(InputTensor=tensor([6], Flags="OWNED_BY_DML"))
OWNED_SPLIT = {"type": "SPLIT", "desc": OWNED, "bindings": {"InputTensor": "A"}}
INTO_B_C_D = {"OutputTensors": ["B", "C", "D"]}


def test_an_input_owned_by_dml_keeps_its_values_at_initialization(ran: Run) -> None:
    whole = {"Axis": 0, "InputTensor": tensor([6]), "OutputTensors": [tensor([6])]}
    splits = {"cut": OWNED_SPLIT, "copy": {"type": "SPLIT", "desc": whole}}
    overwrite = dispatch("copy", InputTensor="Z", OutputTensors=["A"])
    commands = [overwrite, dispatch(**INTO_B_C_D), prints("B")]
    program = model(dispatchables=splits, commands=commands, resources={"Z": zeros(6)})
    assert ran(program) == ["Resource 'B': 1, 2"]


def test_an_input_owned_by_dml_is_bound_at_initialization_only(
    refused: Callable[[Any], str],
) -> None:
    bound_twice = model(
        dispatchables={"cut": OWNED_SPLIT}, commands=[dispatch(InputTensor="A", **INTO_B_C_D)]
    )
    assert "binds 'InputTensor'; it must bind OutputTensors" in refused(bound_twice)
    unbound = model(dispatchables={"cut": {"type": "SPLIT", "desc": OWNED}})
    assert "dispatchables.cut.bindings lacks 'InputTensor'" in refused(unbound)


def test_bindings_may_share_a_resource_at_aligned_offsets(ran: Run) -> None:
    bindings = {
        "InputTensor": {"name": "A", "elementCount": 6},
        "OutputTensors": [
            "Out",
            {"name": "Out", "elementCount": 1, "elementOffset": 4},
            {"name": "Out", "elementSizeInBytes": 8, "elementOffset": 4},
        ],
    }
    commands = [dispatch(**bindings), prints("Out")]
    (line,) = ran(model(resources={"Out": zeros(11)}, commands=commands))
    assert line == "Resource 'Out': 1, 2, 0, 0, 3, 0, 0, 0, 4, 5, 6"


def test_lines_are_printed_as_they_are_produced(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(EXAMPLE)
    lines: list[str] = []
    result = run(tmp_path / "model.json", "cpu", output=lines.append)
    assert tuple(lines) == result.lines
    assert result.resources["Out3"].tolist() == [5, 6]


def test_files_are_written_beside_the_model(ran: Run, tmp_path: Path) -> None:
    commands = [
        dispatch(**A_INTO_B_C_D),
        writes("D", "out.npy"),
        {**writes("A", "sub\\A.npy", dimensions=[2, 3]), "type": "WriteFile"},
        writes("B", "out.dat"),
        writes("Halves", "halves.npy"),
    ]
    lines = ran(model(commands=commands, resources={"Halves": values("FLOAT16", [1, 2, 3])}))
    assert lines[0] == f"Resource 'D' written to '{tmp_path / 'out.npy'}'"
    assert np.load(tmp_path / "out.npy").tolist() == [4, 5, 6]
    assert np.load(tmp_path / "sub" / "A.npy").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (tmp_path / "out.dat").read_bytes() == np.array([1, 2], "<f4").tobytes()
    # As on Windows, the whole buffer is written, including the padding to 4 bytes.
    assert np.load(tmp_path / "halves.npy").tolist() == [1, 2, 3, 0]
    assert not list(tmp_path.glob(".*"))


def test_print_commands_of_more_than_64_mib_are_refused(refused: Callable[[Any], str]) -> None:
    message = refused(model(resources={"X": zeros(2**23)}, commands=[prints("X")] * 3))
    assert "; at most 67108864 are printed. Fix: use writeFile" in message


def test_nothing_is_written_when_a_later_command_is_refused(
    refused: Callable[[Any], str], tmp_path: Path
) -> None:
    write = writes("A", "a.npy")
    wrong = {"cut": {"type": "SPLIT", "desc": split_desc(Axis=4)}}
    refused(model(commands=[write, prints("Z")]))
    refused(model(commands=[write, {**write, "dimensions": [100]}]))
    refused(model(commands=[write], dispatchables=wrong))
    (tmp_path / "folder").mkdir()
    refused(model(commands=[write, writes("A", "folder")]))
    message = refused(model(commands=[write, writes("A", "a.npy/b.npy")]))
    assert "a.npy cannot be written: another command writes a file in it" in message
    assert not (tmp_path / "a.npy").exists()


# The files that a model writes.

WRITE = writes("D", "d.npy")
COMMANDS = [dispatch(**A_INTO_B_C_D), WRITE]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model that writes d.npy."""
    (tmp_path / "m.json").write_text(json.dumps(model(commands=COMMANDS)))
    return tmp_path / "m.json"


def test_files_are_replaced_only_when_asked(file: Path, capsys: Capsys) -> None:
    target = file.with_name("d.npy")
    target.write_text("precious")
    assert main(["run", str(file)]) == 2
    message = f"commands[1]: {target} exists; it is not replaced. Fix: add --overwrite\n"
    assert capsys.readouterr().err.endswith(message)
    assert target.read_text() == "precious"
    assert main(["run", str(file), "--overwrite"]) == 0
    assert np.load(target).tolist() == [4, 5, 6]


def test_a_run_may_write_a_file_twice(file: Path) -> None:
    file.write_text(json.dumps(model(commands=[*COMMANDS, WRITE])))
    run(file)
    assert np.load(file.with_name("d.npy")).tolist() == [4, 5, 6]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_that_the_model_reads_is_never_replaced(link: Any, file: Path) -> None:
    target, source = file.with_name("d.npy"), file.with_name("read.npy")
    np.save(source, np.zeros(3, "f4"))
    read = {"R": values(F32, {"sourcePath": "read.npy"})}
    file.write_text(json.dumps(model(commands=COMMANDS, resources=read)))
    for name in (source, file):
        link(target, name)
        with pytest.raises(InvalidArgumentError, match=r"d.npy is the input "):
            run(file, overwrite=True)
        target.unlink()
    assert np.load(source).tolist() == [0, 0, 0]


def test_names_reach_the_terminal_without_control_characters(ran: Run) -> None:
    name = "\x1b[2J\n"
    (line,) = ran(model(resources={name: zeros(1)}, commands=[prints(name)]))
    assert line.startswith(r"Resource '\x1b[2J\n': ")
