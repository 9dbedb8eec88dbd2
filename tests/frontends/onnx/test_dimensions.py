"""Sizes that a user gives to dynamic dimensions."""

from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx", reason="builds models with the package onnx")

import dmlsplit as dml  # noqa: E402
from dmlsplit.frontends.onnx import FixedSizes, scan  # noqa: E402
from tests.support.onnx_graphs import model, node, value  # noqa: E402

CUT = node("Split", "y", "a b", axis=1, num_outputs=2)


def shape(tmp_path: Path, content: Any, **given: int) -> tuple[int | str, ...]:
    """Shape of the input of the only split."""
    (tmp_path / "m.onnx").write_bytes(content.SerializeToString())
    sizes = FixedSizes({name.replace("__", "."): size for name, size in given.items()})
    (found,) = scan(tmp_path / "m.onnx", sizes)
    sizes.check_all_used()
    return found.shape


def through(inner: str, *declared: Any, inputs: Any = ("batch", 6)) -> Any:
    nodes = [node(inner, "x", "y", domain="" if inner == "Relu" else "own"), CUT]
    return model(nodes, [value("x", list(inputs))], declared=declared)


def test_a_size_by_name(tmp_path: Path) -> None:
    assert shape(tmp_path, through("Relu"), batch=3) == (3, 6)


def test_a_size_by_input_and_axis(tmp_path: Path) -> None:
    assert shape(tmp_path, through("Relu"), x__0=3) == (3, 6)
    assert shape(tmp_path, through("Relu", inputs=(None, 6)), x__0=3) == (3, 6)
    assert shape(tmp_path, through("Relu", inputs=(-1, 6)), x__0=3) == (3, 6)


def test_a_declared_shape_repeats_the_name(tmp_path: Path) -> None:
    content = through("Mystery", value("y", ["batch", 6]))
    assert shape(tmp_path, content, batch=3) == (3, 6)
    assert shape(tmp_path, content, x__0=3) == (3, 6)


def test_each_name_has_its_size(tmp_path: Path) -> None:
    content = through("Relu", inputs=("n", 6, "h"))
    assert shape(tmp_path, content, n=2, h=5) == (2, 6, 5)
    assert shape(tmp_path, content, h=5) == ("n", 6, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"other": 1}, "dimension other is given the size 1; no .onnx model here has"),
        ({"x__1": 1}, "x.1 is 1; the model fixes it to 6"),
        ({"x__2": 1}, "dimension x.2 is given the size 1; no .onnx model here has"),
        ({"batch": 1, "x__0": 2}, "dimension batch is 1, and as x.0 it is 2; both must be equal"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, given: dict[str, int], message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        shape(tmp_path, through("Relu"), **given)
