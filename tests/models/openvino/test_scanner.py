"""The splits of OpenVINO IR files: files that OpenVINO saved, and files written by hand."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.frontends import Known, SplitSite, Unknown
from dmlsplit.frontends.openvino import scan
from dmlsplit.models.site import Cause
from tests.support.openvino_files import (
    EDGES,
    INT64,
    Scan,
    const,
    edge,
    layer,
    net,
    piece_sizes,
    port,
    variadic,
    weights,
)

# Files that OpenVINO wrote.


def test_a_model_that_openvino_saved_is_scanned(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as op

    data = op.parameter([2, 6], np.float32, name="x")
    condition = op.parameter([], np.bool_, name="condition")
    lengths = op.constant(np.array([2, -1, 0], np.int32))
    first, rest, empty_piece = op.variadic_split(data, op.constant(INT64(1)), lengths).outputs()
    first.get_node().set_friendly_name("cut")
    equal = op.split(rest, op.constant(np.int8(-1)), 2)
    inner, else_input = (op.parameter([2, 4], np.float32) for _ in range(2))
    ones = op.variadic_split(inner, op.constant(np.array([0])), op.constant(np.array([1, 1])))
    then_body = ov.Model(ones.outputs(), [inner])
    else_body = ov.Model(op.split(else_input, op.constant(INT64(0)), 2).outputs(), [else_input])
    branch = op.if_op(condition)
    branch.set_friendly_name("branch")
    branch.set_then_body(then_body)
    branch.set_else_body(else_body)
    branch.set_input(rest, inner, else_input)
    results = zip(then_body.results, else_body.results, strict=True)
    outs = [branch.set_output(*pair) for pair in results]
    model = ov.Model([*equal.outputs(), first, empty_piece, *outs], [data, condition], "toy")
    ov.save_model(model, tmp_path / "toy.xml", compress_to_fp16=False)

    sites = {site.graph + ":" + site.operator: site for site in scan(tmp_path / "toy.xml")}
    texts = {key: str(site.state.descriptor) for key, site in sites.items()}
    halves = "SPLIT axis 0: FLOAT32[2,4] -> FLOAT32[1,4], FLOAT32[1,4]"
    assert texts == {
        "toy:VariadicSplit-1": "SPLIT axis 1: FLOAT32[2,6] -> FLOAT32[2,2], FLOAT32[2,4]",
        "toy:Split-1": "SPLIT axis 1: FLOAT32[2,4] -> FLOAT32[2,2], FLOAT32[2,2]",
        "toy/branch.then_body:VariadicSplit-1": halves,
        "toy/branch.else_body:Split-1": halves,
    }
    assert sites["toy:VariadicSplit-1"].node == "cut"
    assert sites["toy:VariadicSplit-1"].warnings == (
        "outputs [2] are empty; DirectML accepts no empty tensor. Fix: drop them",
    )


# Files written by hand.


def test_a_site_has_the_place_descriptor_shape_and_axis_of_its_layer(
    scanned: Scan, tmp_path: Path
) -> None:
    (site,) = scanned(variadic(), weights())
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("FLOAT32", (6, 2)), axis=0, sizes=(2, 4))
    assert site == SplitSite(
        file=str(tmp_path / "model.xml"),
        graph="toy",
        node="cut",
        index=3,
        operator="VariadicSplit-1",
        state=Known(desc, (2, 4)),
        shape=(6, 2),
        axis=0,
        format="openvino",
    )


def test_a_split_in_the_body_of_a_loop_is_found_although_layer_ids_repeat(scanned: Scan) -> None:
    whole = variadic()
    inside = whole[whole.index("<layers>") : whole.index("<rt_info>")]
    loop = layer(3, "Loop", inner=f"<port_map/><body>{inside}</body>", version="opset5", name="l")
    (site,) = scanned(net([loop], []), weights())
    assert (site.graph, site.node, site.operator) == ("toy/l.body", "cut", "VariadicSplit-1")
    assert piece_sizes(site) == [(2, 2), (4, 2)]


@pytest.mark.parametrize(
    ("changes", "lengths", "problem"),
    [
        ({}, (3, 4), "add up to 7; they must add up to 6"),
        ({"dims": (6, -1)}, (3, 4), "must add up to 6"),
        ({"dims": (-1, 2)}, (-3, 4), "at least -1"),
        ({"axis": const(1, "2", 0, 16)}, (2, 4), "axis has shape [2]"),
        ({"axis": const(1, "", 8, 8)}, (2, 4), "axis is 2; it must be from -2 to 1 at rank 2"),
        ({"axis": const(1, "", 0, 4, "f32")}, (2, 4), "type 'f32'; it must be one of i8, u8, i16"),
        ({"lengths": const(2, "", 8, 8)}, (2, 4), "split_lengths has shape []"),
        ({"lengths": const(2, "2,1", 8, 16)}, (2, 4), "split_lengths has shape [2, 1]"),
        ({"lengths": const(2, "3", 0, 24)}, (2, 4), "makes 3 pieces; the layer has 2 outputs"),
        ({"dims": None, "parameter": 'shape="" element_type="f32"'}, (2, 4), "data is a scalar"),
        ({"precision": "STRING"}, (2, 4), "'STRING', whose elements DirectML cannot carry"),
        ({"precision": "A&#10;B"}, (2, 4), r"A\nB"),
        ({"edges": EDGES[:2]}, (2, 4), "no edge leads to its input split_lengths"),
        ({"edges": [*EDGES[:2], edge((8, 0), (3, 2))]}, (2, 4), "no edge leads"),
        # Ranges that do not fit the file.
        ({"axis": const(1, "", 24, 8)}, (2, 4), "8 bytes from byte 24 are outside model.bin"),
        ({"axis": const(1, "", 2**63 - 1, 8)}, (2, 4), "are outside model.bin"),
        ({"axis": const(1, "", -8, 8)}, (2, 4), "offset is '-8'"),
        ({"axis": const(1, "", 10**30, 8)}, (2, 4), "must be an integer from 0 to"),
        ({"axis": const(1, "", 0, -8)}, (2, 4), "size is '-8'"),
        ({"axis": const(1, "", 0, 4)}, (2, 4), "size is 4; it must be 8, for 1 element of"),
        ({"lengths": const(2, "x", 0, 8)}, (2, 4), "shape is 'x'"),
        ({"lengths": const(2, "2", 0, 16).replace("offset=", "o=")}, (2, 4), "offset is ''"),
        ({"lengths": const(2, "٣", 0, 16)}, (2, 4), "shape is"),
    ],
)
def test_a_layer_that_breaks_a_rule_of_its_operator_is_invalid(
    scanned: Scan, changes: dict[str, Any], lengths: tuple[int, ...], problem: str
) -> None:
    (site,) = scanned(variadic(**changes), weights(0, lengths))
    assert problem in site.state.problem
    assert "\n" not in site.state.problem
    assert site.state.problem.startswith("VariadicSplit-1: ")


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"dims": (6, -1)}, "dimension 1 of the data is dynamic"),
        ({"dims": (-1, 2)}, "dimension 0 of the data is dynamic"),
        ({"dims": None, "parameter": 'shape="..." element_type="f32"'}, "the rank of the data"),
        ({"split_version": "extension"}, "operation set is 'extension'"),
        ({"axis": layer(1, "ShapeOf", outputs=port(0, None))}, "axis is dynamic: .* by 'ShapeOf'"),
        ({"edges": [EDGES[0], edge((3, 3), (3, 1))]}, "axis is dynamic: .* by 'VariadicSplit'"),
    ],
)
def test_a_split_is_unknown_with_a_reason_if_the_file_does_not_determine_it(
    scanned: Scan, changes: dict[str, Any], unknown: str
) -> None:
    (site,) = scanned(variadic(**changes), weights())
    assert re.match(unknown, site.state.reason)
    if "axis" in changes:
        assert site.state.smallest_descriptor.input_tensor.sizes == (6, 2)


def test_lengths_computed_at_run_time_are_taken_from_static_outputs(scanned: Scan) -> None:
    lengths = layer(2, "ShapeOf", outputs=port(0, (2,), "I64"))
    (site,) = scanned(variadic(lengths=lengths), weights())
    assert piece_sizes(site) == [(2, 2), (4, 2)]
    (site,) = scanned(variadic(lengths=lengths, outputs=((-1, 2), (4, 2))), weights())
    assert site.state.reason == "split_lengths is dynamic: it is computed by 'ShapeOf'"


def test_an_output_declared_with_a_contradicting_shape_gives_a_warning(scanned: Scan) -> None:
    (site,) = scanned(variadic(outputs=((3, 2), (3, 2))), weights())
    assert site.warnings[0] == "output 0 is declared as [3, 2]; the split makes [2, 2]"


def test_a_split_without_ports_is_an_invalid_site(scanned: Scan) -> None:
    (site,) = scanned(net([layer(3, "Split")], []))
    assert site.state.problem == "Split-1: the layer has no input; its first input must be the data"


@pytest.mark.parametrize("splits", ["", "0", "-1", "three", "3.0", "9" * 30])
def test_num_splits_must_be_an_integer(scanned: Scan, splits: str) -> None:
    inputs, data = port(0, (6,)) + port(1, None), f'num_splits="{splits}"'
    cut = layer(3, "Split", data=data, inputs=inputs, outputs=port(2, (2,)))
    (site,) = scanned(net([const(1, "", 0, 8), cut], [edge((1, 0), (3, 1))]), weights())
    assert site.state.problem.startswith("Split-1: num_splits is")


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        (variadic(dims=(1,) * 65), "its input has more than 64 dimensions, the most that are read"),
        (
            variadic(axis=const(1, ",".join("1" * 65), 0, 8)),
            "Const 'Const_1' has more than 64 dimensions, the most that are read",
        ),
    ],
)
def test_what_is_beyond_a_limit_of_dmlsplit_is_unknown(
    split: str, reason: str, scanned: Scan
) -> None:
    (site,) = scanned(split, weights())
    assert site.state.cause is Cause.LIMIT
    assert site.state.reason == reason


AXIS_PORTS = {"inputs": port(0, (), "I64"), "outputs": port(1, (), "I32")}


def through_a_convert(kind: str) -> str:
    """A split whose axis, a constant, is converted to another type."""
    convert = layer(1, "Convert", data=f'destination_type="{kind}"', **AXIS_PORTS)
    edges = [edge((0, 0), (3, 0)), edge((9, 0), (1, 0)), edge((1, 1), (3, 1)), edge((2, 0), (3, 2))]
    return variadic(axis=const(9, "", 0, 8) + convert, edges=edges)


def test_a_constant_axis_is_read_through_a_convert_between_integers(scanned: Scan) -> None:
    (site,) = scanned(through_a_convert("i32"), weights())
    assert isinstance(site.state, Known)
    assert site.state == scanned(variadic(), weights())[0].state
    (site,) = scanned(through_a_convert("u8"), weights())
    assert isinstance(site.state, Unknown)
    assert (site.state.cause, site.state.reason) == (
        Cause.AXIS,
        "axis is dynamic: it is computed by 'Convert'",
    )
