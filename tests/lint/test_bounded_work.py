"""Small files that ask for much: the work and the reports grow with the file, and no faster.

Work is counted in calls of Python functions, because times depend on the machine.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.lint.check import assess
from dmlsplit.lint.report import FORMATS, render
from dmlsplit.lint.target import resolve_target
from dmlsplit.models.discovery import scan_file
from dmlsplit.models.onnx import reader
from tests.support.onnx_graphs import INT64, model, node, sizes, value

Made = Callable[[int], bytes]


def onnx_of(nodes: list[Any], *initializers: Any, x: int = 500, opset: int = 13) -> bytes:
    content = model(nodes, [value("x", [x, 4])], initializers=initializers, opsets={"": opset})
    return bytes(content.SerializeToString())


def sequences(count: int) -> bytes:
    return onnx_of([node("SplitToSequence", "x", f"s{i}") for i in range(count)])


def chunks(count: int) -> bytes:
    """Sequences of which no two have pieces of one size."""
    cuts = [node("SplitToSequence", f"x c{i}", f"s{i}") for i in range(count)]
    return onnx_of(cuts, *(sizes(f"c{i}", 2 + i) for i in range(count)))


def growing(count: int) -> bytes:
    """Constants that double in size until a limit stops them."""
    doubled = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(count)]
    return onnx_of([*doubled, node("Split", f"x v{count}", "a b")], sizes("v0", 1, 2))


def outputs(count: int) -> bytes:
    names = " ".join(f"y{i}" for i in range(count))
    return onnx_of([node("Split", "x", names)], x=count)


def empty_pieces(count: int) -> bytes:
    names = " ".join(f"y{i}" for i in range(count))
    return onnx_of([node("Split", "x s", names)], sizes("s", 4, *[0] * (count - 1)), x=4)


def conflicts(count: int) -> bytes:
    """One name for many values, each with a wrong declaration."""
    nodes = [node("Relu", "x", "y") for _ in range(count)]
    declarations = [value("y", [5, 6], INT64) for _ in range(count)]
    cut = node("Split", "y", "a b")
    content = model(
        [*nodes, cut], [value("x", [4, 4])], declared=tuple(declarations), opsets={"": 13}
    )
    return bytes(content.SerializeToString())


def descriptor(sizes_of: Callable[[int], list[int]], outputs_of: Callable[[int], int]) -> Made:
    def made(count: int) -> bytes:
        tensor = {"DataType": "FLOAT32", "Sizes": sizes_of(count)}
        fields = {"InputTensor": tensor, "OutputTensors": [tensor] * outputs_of(count), "Axis": 0}
        return json.dumps(fields).encode()

    return made


HOSTILE: dict[str, tuple[str, Made, int]] = {
    "sequences": ("onnx", sequences, 4),
    "sequences of chunks": ("onnx", chunks, 20),
    "growing constants": ("onnx", growing, 20),
    "outputs": ("onnx", outputs, 400),
    "empty pieces": ("onnx", empty_pieces, 400),
    "conflicts": ("onnx", conflicts, 100),
    "a descriptor's sizes": ("json", descriptor(lambda n: [1] * n, lambda n: 1), 2000),
    "a descriptor's large sizes": (
        "json",
        descriptor(lambda n: [2**32 - 1] * n, lambda n: 1),
        5000,
    ),
    "a descriptor's outputs": ("json", descriptor(lambda n: [1], lambda n: n), 300),
}


def work(content: bytes, ending: str, form: str, folder: Path) -> tuple[int, int]:
    """The Python calls and the length of the report of a check."""
    path = folder / f"model.{ending}"
    path.write_bytes(content)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        report = render(assess(scan_file(str(path)), resolve_target(windows="19041")), form)
    finally:
        sys.setprofile(None)
    return calls, len(report)


@pytest.mark.parametrize("name", HOSTILE)
def test_twice_the_file_takes_twice_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MIN_COMPUTED", 1000)
    ending, file_of, count = HOSTILE[name]
    work(file_of(1), ending, "json", tmp_path)  # what is imported and cached
    small, large = (work(file_of(n), ending, "json", tmp_path) for n in (count, 2 * count))
    # A limit may stop the smaller file already; below that, 10 % for sums that are not exact.
    for before, after in zip(small, large, strict=True):
        assert after <= 2.2 * before + 4096


def test_a_small_file_with_large_sequences_takes_little_memory_and_has_small_reports(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.onnx"
    cuts = [node("SplitToSequence", "x", f"s{i}") for i in range(10)]
    path.write_bytes(onnx_of(cuts, x=16_000))
    tracemalloc.start()
    sites = scan_file(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    assessment = assess(sites, resolve_target())
    assert all(len(render(assessment, form)) < 500_000 for form in FORMATS)


def split_in_json(content: bytes, folder: Path) -> dict[str, Any]:
    """What a report in JSON says of the only split of a model, in ONNX Runtime."""
    path = folder / "model.onnx"
    path.write_bytes(content)
    (split,) = json.loads(render(assess(scan_file(str(path)), resolve_target(ort="")), "json"))[
        "splits"
    ]
    return dict(split)


def test_json_lists_256_outputs_and_counts_the_rest(tmp_path: Path) -> None:
    split = split_in_json(outputs(300), tmp_path)
    (record,) = split["descriptors"]
    assert len(record["output_tensors"]) == 256
    assert record["omitted_outputs"] == 300 - 256
    assert split["omitted_diagnostics"] == 0


def test_json_lists_256_reasons_and_counts_the_rest(tmp_path: Path) -> None:
    split = split_in_json(empty_pieces(300), tmp_path)  # one of which is not empty
    assert len(split["diagnostics"]) == 256
    assert split["omitted_diagnostics"] == 299 - 256
