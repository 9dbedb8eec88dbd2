"""Every type of the installed OpenVINO, at every input, in files and as arrays."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset1

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import Invalid, Known, Unknown
from dmlsplit.frontends.openvino import scan, split, variadic_split
from tests.support.openvino_files import Scan, const, variadic, weights

TYPES = {name: kind for name, kind in vars(ov.Type).items() if isinstance(kind, ov.Type)}
# OpenVINO's documentation, "VariadicSplit": axis and lengths are of any integer type.
INTEGERS = {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)}
CARRIED = {"f16": "FLOAT16", "f64": "FLOAT64", "bf16": "UINT16", "boolean": "UINT8"}
CARRIED |= {"i64": "INT64", "u8": "UINT8", "f8e4m3": "UINT8", "u4": "UINT4"}
# Types whose elements DirectML lacks; its elements are 4 bits wide, or whole bytes.
NOT_CARRIED = {"u1", "u2", "u3", "u6", "nf4", "f4e2m1", "string"}


@pytest.mark.parametrize("name", TYPES)
def test_data_of_any_type_in_a_file_that_openvino_saved_is_scanned(
    name: str, tmp_path: Path
) -> None:
    data = ov.op.Parameter(TYPES[name], ov.PartialShape([6, 2]))
    lengths = opset1.constant(np.array([2, 4], np.int64))
    cut = opset1.variadic_split(data, opset1.constant(0), lengths)
    ov.save_model(ov.Model(cut.outputs(), [data]), tmp_path / "m.xml", compress_to_fp16=False)
    (site,) = scan(tmp_path / "m.xml")
    assert isinstance(site.state, Unknown) == (name == "dynamic")
    assert isinstance(site.state, Invalid) == (name in NOT_CARRIED)
    for desc in [site.state.descriptor] if isinstance(site.state, Known) else []:
        carrier = desc.input_tensor.data_type
        assert carrier.bits == TYPES[name].bitwidth
        assert carrier.name == CARRIED.get(name, carrier.name)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("place", ["axis", "lengths"])
def test_an_axis_and_lengths_in_a_file_may_have_any_integer_type(
    place: str, name: str, scanned: Scan
) -> None:
    size = max(1, TYPES[name].bitwidth // 8) if name != "dynamic" else 8
    layer, shape, numbers = {"axis": (1, "", [0]), "lengths": (2, "2", [2, 4])}[place]
    number_bytes = b"".join(number.to_bytes(size, "little") for number in numbers)
    constant_layer = const(layer, shape, 24, len(number_bytes), name)
    (site,) = scanned(variadic(**{place: constant_layer}), weights() + number_bytes)
    assert isinstance(site.state, Known) == (name in INTEGERS)


# NumPy has no 8-bit floats.
DTYPES = {
    name: kind.to_dtype()
    for name, kind in TYPES.items()
    if kind.is_static() and kind.bitwidth >= 8 and name[:2] not in ("f8", "st")
}


@pytest.mark.parametrize("name", DTYPES)
def test_data_may_have_any_type_of_openvino_but_axis_and_lengths_only_integers(name: str) -> None:
    dtype = DTYPES[name]
    data = np.arange(6).astype(dtype)
    first_piece, second_piece = variadic_split(data, 0, [2, 4])
    assert [first_piece.tolist(), second_piece.tolist()] == [data[:2].tolist(), data[2:].tolist()]
    calls = [
        lambda: variadic_split(np.arange(6), np.array([0], dtype), [2, 4]),
        lambda: variadic_split(np.arange(6), 0, np.array([2, 4], dtype)),
        lambda: split(np.arange(6), np.array(0, dtype), 2),
    ]
    for call in calls:
        if name in INTEGERS:
            assert len(call()) == 2
        else:
            with pytest.raises(InvalidArgumentError, match="integer"):
                call()
