"""The splits of OpenVINO IR files: real ones, handwritten ones and hostile ones."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.openvino import scan

INT64 = np.int64


def port(identity: int | str, dims: tuple[int, ...] | None, precision: str = "FP32") -> str:
    inside = "".join(f"<dim>{dim}</dim>" for dim in dims or ())
    kind = f' precision="{precision}"' if precision else ""
    return f'<port id="{identity}"{kind}>{inside}</port>'


def layer(
    identity: int,
    kind: str,
    *,
    data: str = "",
    inputs: str = "",
    outputs: str = "",
    inner: str = "",
    version: str = "opset1",
    name: str | None = None,
) -> str:
    name = f"{kind}_{identity}" if name is None else name
    data = f"<data {data}/>" if data else ""
    return (
        f'<layer id="{identity}" name="{name}" type="{kind}" version="{version}">{data}'
        f"<input>{inputs}</input><output>{outputs}</output>{inner}</layer>"
    )


def const(identity: int, shape: str, offset: int, size: int, kind: str = "i64") -> str:
    data = f'element_type="{kind}" shape="{shape}" offset="{offset}" size="{size}"'
    return layer(identity, "Const", data=data, outputs=port(0, None, "I64"))


def edge(source: tuple[int, int], target: tuple[int, int]) -> str:
    return (
        f'<edge from-layer="{source[0]}" from-port="{source[1]}"'
        f' to-layer="{target[0]}" to-port="{target[1]}"/>'
    )


def net(layers: list[str], edges: list[str], version: str = "11") -> str:
    return (
        f'<?xml version="1.0"?><net name="toy" version="{version}"><layers>{"".join(layers)}'
        f"</layers><edges>{''.join(edges)}</edges><rt_info><x><y/></x></rt_info></net>"
    )


EDGES = [edge((0, 0), (3, 0)), edge((1, 0), (3, 1)), edge((2, 0), (3, 2))]


def variadic(
    *,
    dims: tuple[int, ...] | None = (6, 2),
    precision: str = "FP32",
    axis: str | None = None,
    lengths: str | None = None,
    outputs: tuple[tuple[int, ...], ...] = ((2, 2), (4, 2)),
    edges: list[str] = EDGES,
    parameter: str = 'shape="6,2" element_type="f32"',
    version: str = "11",
    split_version: str = "opset1",
) -> str:
    """One VariadicSplit of FP32[6,2]; the axis is at byte 0 of the weights, the lengths at 8."""
    made = "".join(port(3 + i, shape, precision) for i, shape in enumerate(outputs))
    split = layer(
        3,
        "VariadicSplit",
        inputs=port(0, dims, precision) + port(1, None, "I64") + port(2, (2,), "I64"),
        outputs=made,
        version=split_version,
        name="cut",
    )
    layers = [
        layer(0, "Parameter", data=parameter, outputs=port(0, dims, precision)),
        const(1, "", 0, 8) if axis is None else axis,
        const(2, "2", 8, 16) if lengths is None else lengths,
        split,
    ]
    return net(layers, edges, version)


def weights(axis: int = 0, lengths: tuple[int, ...] = (2, 4)) -> bytes:
    return np.array([axis, *lengths], INT64).tobytes()


Scan = Callable[..., list[SplitSite]]


@pytest.fixture
def scanned(tmp_path: Path) -> Scan:
    def run(xml: str | bytes, bin_bytes: bytes | None = None) -> list[SplitSite]:
        path = tmp_path / "model.xml"
        path.write_bytes(xml.encode() if isinstance(xml, str) else xml)
        weights_path = tmp_path / "model.bin"
        weights_path.unlink(missing_ok=True)
        if bin_bytes is not None:
            weights_path.write_bytes(bin_bytes)
        return scan(path)

    return run


# Files that OpenVINO writes.


def test_a_model_that_openvino_saved(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as op

    data = op.parameter([2, 6], np.float32, name="x")
    condition = op.parameter([], np.bool_, name="condition")
    variadic_split = op.variadic_split(
        data, op.constant(INT64(1)), op.constant(np.array([2, -1, 0], np.int32))
    )
    variadic_split.set_friendly_name("cut")
    equal = op.split(variadic_split.output(1), op.constant(np.int8(-1)), 2)
    inner = op.parameter([2, 4], np.float32)
    then_body = ov.Model(
        op.variadic_split(
            inner, op.constant(np.array([0])), op.constant(np.array([1, 1]))
        ).outputs(),
        [inner],
    )
    other = op.parameter([2, 4], np.float32)
    else_body = ov.Model(op.split(other, op.constant(INT64(0)), 2).outputs(), [other])
    branch = op.if_op(condition)
    branch.set_friendly_name("branch")
    branch.set_then_body(then_body)
    branch.set_else_body(else_body)
    branch.set_input(variadic_split.output(1), inner, other)
    outs = [
        branch.set_output(a, b) for a, b in zip(then_body.results, else_body.results, strict=True)
    ]
    results = [*equal.outputs(), variadic_split.output(0), variadic_split.output(2), *outs]
    model = ov.Model(results, [data, condition], "toy")
    ov.save_model(model, tmp_path / "toy.xml", compress_to_fp16=False)

    found = {site.place + ":" + site.operator: site for site in scan(tmp_path / "toy.xml")}
    texts = {key: [str(desc) for desc in site.descriptors] for key, site in found.items()}
    assert texts == {
        "toy:VariadicSplit-1": ["SPLIT axis 1: FLOAT32[2,6] -> FLOAT32[2,2], FLOAT32[2,4]"],
        "toy:Split-1": ["SPLIT axis 1: FLOAT32[2,4] -> FLOAT32[2,2], FLOAT32[2,2]"],
        "toy/branch.then_body:VariadicSplit-1": [
            "SPLIT axis 0: FLOAT32[2,4] -> FLOAT32[1,4], FLOAT32[1,4]"
        ],
        "toy/branch.else_body:Split-1": [
            "SPLIT axis 0: FLOAT32[2,4] -> FLOAT32[1,4], FLOAT32[1,4]"
        ],
    }
    assert found["toy:VariadicSplit-1"].node == "cut"
    assert found["toy:VariadicSplit-1"].warnings == (
        "outputs [2] are empty; DirectML takes no empty tensor, so drop them",
    )
    assert not any(site.problem or site.unknown for site in found.values())


def test_a_dynamic_model_that_openvino_saved(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as op

    data = op.parameter(ov.PartialShape([-1, 6]), np.float32)
    lengths = op.parameter([2], np.int64)
    rankless = op.parameter(ov.PartialShape.dynamic(), np.float32)
    axis = op.constant(INT64(1))
    splits = [
        op.variadic_split(data, axis, op.constant(np.array([2, 4]))),
        op.variadic_split(op.parameter([6, 6], np.float32), axis, lengths),
        op.split(rankless, axis, 2),
    ]
    inputs = [data, splits[1].input_value(0).get_node(), lengths, rankless]
    model = ov.Model([out for node in splits for out in node.outputs()], inputs)
    ov.save_model(model, tmp_path / "dynamic.xml")
    unknown = {site.unknown for site in scan(tmp_path / "dynamic.xml")}
    assert unknown == {
        "dimension 0 of the data is dynamic",
        "split_lengths is dynamic: it is computed by 'Parameter'",
        "the rank of the data is dynamic",
    }


# Files written by hand.


def test_a_finding_says_where_it_is(scanned: Scan, tmp_path: Path) -> None:
    (found,) = scanned(variadic(), weights())
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("FLOAT32", (6, 2)), axis=0, sizes=(2, 4))
    file = str(tmp_path / "model.xml")
    known = {"shape": (6, 2), "axis": 0, "pieces": (2, 4)}
    assert found == SplitSite(file, "toy", "cut", 3, "VariadicSplit-1", (desc,), **known)


def test_version_10_names_precisions_at_outputs_only(scanned: Scan) -> None:
    xml = variadic(version="10").replace('<port id="0" precision="FP32">', '<port id="0">')
    (found,) = scanned(xml, weights())
    assert str(found.descriptors[0].input_tensor) == "FLOAT32[6,2]"


def test_a_constant_may_be_described_by_its_output_alone(scanned: Scan) -> None:
    lengths = layer(2, "Const", data='offset="8" size="16"', outputs=port(0, (2,), "I64"))
    (found,) = scanned(variadic(lengths=lengths), weights())
    assert found.descriptors


def test_constants_share_bytes_and_lie_anywhere(scanned: Scan) -> None:
    raw = b"\1" + np.array([0, 2, 4], "<i2").tobytes()
    axis = const(1, "1", 1, 2, "i16")
    lengths = const(2, "2", 3, 4, "i16")
    (found,) = scanned(variadic(axis=axis, lengths=lengths), raw)
    assert [t.sizes for t in found.descriptors[0].output_tensors] == [(2, 2), (4, 2)]
    shared = const(1, "", 0, 8), const(2, "2", 0, 16)
    (found,) = scanned(
        variadic(axis=shared[0], lengths=shared[1], dims=(6, 4), outputs=((6, 1), (6, 3))),
        np.array([1, 3], INT64).tobytes(),
    )
    assert found.descriptors[0].axis == 1


@pytest.mark.parametrize(
    ("precision", "carrier"),
    [
        ("FP16", "FLOAT16"),
        ("FP64", "FLOAT64"),
        ("BF16", "UINT16"),
        ("BOOL", "UINT8"),
        ("I64", "INT64"),
        ("U8", "UINT8"),
        ("F8E4M3", "UINT8"),
        ("U4", "UINT4"),
    ],
)
def test_types_and_what_they_travel_as(scanned: Scan, precision: str, carrier: str) -> None:
    (found,) = scanned(variadic(precision=precision), weights())
    assert found.descriptors[0].input_tensor.data_type.name == carrier


def test_loops_are_searched_and_ids_start_again(scanned: Scan) -> None:
    body = net(
        [
            layer(0, "Parameter", data='shape="6,2" element_type="f32"', outputs=port(0, (6, 2))),
            const(1, "", 0, 8),
            layer(
                3,
                "Split",
                data='num_splits="3"',
                inputs=port("a", (6, 2)) + port("b", None, "I64"),
                outputs=port("c", (2, 2)) * 3,
            ),
        ],
        [
            '<edge from-layer="0" from-port="0" to-layer="3" to-port="a"/>',
            '<edge from-layer="1" from-port="0" to-layer="3" to-port="b"/>',
        ],
    )
    inside = body[body.index("<layers>") : body.index("<rt_info>")]
    loop = layer(9, "Loop", inner=f"<port_map/><body>{inside}</body>", version="opset5", name="l")
    (found,) = scanned(net([loop], []), weights())
    assert (found.place, found.node, found.operator) == ("toy/l.body", "Split_3", "Split-1")
    assert [t.sizes for t in found.descriptors[0].output_tensors] == [(2, 2)] * 3


@pytest.mark.parametrize(
    ("changes", "lengths", "problem"),
    [
        ({}, (3, 4), "add up to 7; they must add up to 6"),
        ({}, (7, -1), "must not exceed 6"),
        ({}, (-2, 8), "split_lengths[0] is -2"),
        ({}, (-1, -1), "-1 at 0 and 1"),
        ({"axis": const(1, "2", 0, 16)}, (2, 4), "axis has shape [2]"),
        ({"axis": const(1, "1,1", 0, 8)}, (2, 4), "axis has shape [1, 1]"),
        ({"axis": const(1, "", 8, 8)}, (2, 4), "axis is 2; data of 2 dimensions"),
        ({"axis": const(1, "", 0, 4, "f32")}, (2, 4), "type 'f32'; it must be an integer type"),
        ({"axis": const(1, "", 0, 1, "boolean")}, (2, 4), "type 'boolean'"),
        ({"lengths": const(2, "", 8, 8)}, (2, 4), "split_lengths has shape []"),
        ({"lengths": const(2, "2,1", 8, 16)}, (2, 4), "split_lengths has shape [2, 1]"),
        ({"lengths": const(2, "3", 0, 24)}, (2, 4), "makes 3 pieces; the layer has 2 outputs"),
        ({"lengths": const(2, "2", 8, 8, "f32")}, (2, 4), "type 'f32'"),
        ({"dims": None, "parameter": 'shape="" element_type="f32"'}, (2, 4), "data is a scalar"),
        ({"precision": "STRING"}, (2, 4), "'STRING', whose elements DirectML cannot carry"),
        ({"precision": "NF4"}, (2, 4), "NF4"),
        ({"precision": "A&#10;B"}, (2, 4), r"A\nB"),
        ({"edges": EDGES[:2]}, (2, 4), "no edge leads to its input split_lengths"),
        ({"edges": [*EDGES[:2], edge((8, 0), (3, 2))]}, (2, 4), "no edge leads"),
        # Ranges that do not fit the file.
        ({"axis": const(1, "", 24, 8)}, (2, 4), "bytes 24 to 32 lie outside model.bin"),
        ({"axis": const(1, "", 2**63 - 1, 8)}, (2, 4), "lie outside"),
        ({"axis": const(1, "", -8, 8)}, (2, 4), "offset is '-8'"),
        ({"axis": const(1, "", 10**30, 8)}, (2, 4), "must be an integer from 0 to"),
        ({"axis": const(1, "", 0, -8)}, (2, 4), "size is '-8'"),
        ({"axis": const(1, "", 0, 4)}, (2, 4), "size is 4; its 1 elements of i64 take 8"),
        ({"lengths": const(2, "x", 0, 8)}, (2, 4), "shape is 'x'"),
        ({"lengths": const(2, "-2", 0, 8)}, (2, 4), "shape is '-2'"),
        ({"lengths": const(2, "2", 0, 16).replace("offset=", "o=")}, (2, 4), "offset is ''"),
        ({"lengths": const(2, "٣", 0, 16)}, (2, 4), "shape is"),
    ],
)
def test_splits_that_break_their_own_rules(
    scanned: Scan, changes: dict[str, Any], lengths: tuple[int, ...], problem: str
) -> None:
    (found,) = scanned(variadic(**changes), weights(0, lengths))
    assert problem in found.problem
    assert "\n" not in found.problem
    assert found.problem.startswith("VariadicSplit-1: ")
    assert not found.descriptors
    assert not found.unknown


def test_a_claim_of_many_lengths_is_refused_before_it_is_read(scanned: Scan) -> None:
    lengths = const(2, str(2**40), 0, 2**43)
    (found,) = scanned(variadic(lengths=lengths), weights())
    assert f"makes {2**40} pieces" in found.problem


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"dims": (6, -1)}, "dimension 1 of the data is dynamic"),
        ({"dims": (-1, 2)}, "dimension 0 of the data is dynamic"),
        ({"dims": None, "parameter": 'shape="..." element_type="f32"'}, "the rank of the data"),
        ({"split_version": "extension"}, "operation set is 'extension'"),
        ({"axis": layer(1, "ShapeOf", outputs=port(0, None))}, "axis is dynamic: .* by 'ShapeOf'"),
    ],
)
def test_splits_that_cannot_be_known(scanned: Scan, changes: dict[str, Any], unknown: str) -> None:
    (found,) = scanned(variadic(**changes), weights())
    assert re.match(unknown, found.unknown)
    assert not found.descriptors
    assert not found.problem


def test_dynamic_data_with_wrong_lengths_is_a_problem_all_the_same(scanned: Scan) -> None:
    (found,) = scanned(variadic(dims=(6, -1)), weights(0, (3, 4)))
    assert "must add up to 6" in found.problem
    (found,) = scanned(variadic(dims=(-1, 2)), weights(0, (-3, 4)))
    assert "at least -1" in found.problem


def test_lengths_computed_at_run_time_are_read_off_static_outputs(scanned: Scan) -> None:
    lengths = layer(2, "ShapeOf", outputs=port(0, (2,), "I64"))
    (found,) = scanned(variadic(lengths=lengths), weights())
    assert [t.sizes for t in found.descriptors[0].output_tensors] == [(2, 2), (4, 2)]
    (found,) = scanned(variadic(lengths=lengths, outputs=((-1, 2), (4, 2))), weights())
    assert found.unknown == "split_lengths is dynamic: it is computed by 'ShapeOf'"


def test_missing_weights_are_said(scanned: Scan) -> None:
    (found,) = scanned(variadic(), None)
    assert found.unknown == "axis is unknown: the weights file model.bin is missing"


def test_weights_are_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "model.xml").write_text(variadic())
    (tmp_path / "secret").write_bytes(weights())
    (inside / "model.bin").symlink_to("../secret")
    (found,) = scan(inside / "model.xml")
    assert "links out of its folder and is not followed" in found.unknown
    (inside / "model.bin").unlink()
    (inside / "other").write_bytes(weights())
    (inside / "model.bin").symlink_to("other")
    assert scan(inside / "model.xml")[0].descriptors


def test_outputs_that_are_declared_otherwise_are_pointed_out(scanned: Scan) -> None:
    (found,) = scanned(variadic(outputs=((3, 2), (3, 2))), weights())
    assert found.warnings[0] == "output 0 is declared as [3, 2]; the split makes [2, 2]"


def test_edges_in_a_circle_do_no_harm(scanned: Scan) -> None:
    circle = [edge((0, 0), (3, 0)), edge((3, 3), (3, 1)), edge((3, 4), (3, 2))]
    (found,) = scanned(variadic(edges=circle), weights())
    assert found.unknown == "axis is dynamic: it is computed by 'VariadicSplit'"


@pytest.mark.parametrize("splits", ["", "0", "-1", "three", "3.0", "9" * 30, "1048577"])
def test_num_splits_is_read_strictly(scanned: Scan, splits: str) -> None:
    layers = [
        const(1, "", 0, 8),
        layer(
            3,
            "Split",
            data=f'num_splits="{splits}"',
            inputs=port(0, (6,)) + port(1, None),
            outputs=port(2, (2,)),
        ),
    ]
    (found,) = scanned(net(layers, [edge((1, 0), (3, 1))]), weights())
    assert found.problem.startswith("Split-1: num_splits is")


# Files that are no IR, or mean harm.

BOMB = '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaaaaaaaa">]><net version="11">&a;</net>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not well-formed"),
        (b"not xml", "not well-formed"),
        (b'<net version="11"', "not well-formed"),
        (variadic()[:400].encode(), "not well-formed"),
        (b"<html/>", "root <html>; it must be <net>"),
        (b"<net/>", "net version is missing"),
        (b'<net version="7"/>', "net version is '7'; it must be 10 or 11. Fix: convert"),
        (b'<net version="12"/>', "net version is '12'"),
        (BOMB.encode(), "DOCTYPE or ENTITY"),
        (b" " * 65530 + BOMB.encode()[21:], "DOCTYPE or ENTITY"),
        (BOMB.replace("DOCTYPE", "doctype").encode(), "DOCTYPE or ENTITY"),
        (BOMB.encode("utf-16"), "zero byte"),
        (BOMB.encode("utf-16-be"), "zero byte"),
        (BOMB.encode("utf-32"), "zero byte"),
        (BOMB.encode("cp037"), "not well-formed"),
        (b'<?xml version="1.0" encoding="utf-7"?><net version="11"/>', "encoding 'utf-7'"),
        (b'<?xml version="1.0" encoding="cp037"?><net version="11"/>', "encoding 'cp037'"),
        (b'<?xml version="1.0"?><net version="11">\xff</net>', "not well-formed"),
        (variadic().replace('id="2"', 'id="1"').encode(), "two layers have the id '1'"),
        (variadic(edges=[EDGES[0], EDGES[0]]).encode(), "two edges lead to port '0' of layer '3'"),
        (variadic().replace('to-port="1"', "").encode(), "<edge> lacks the attribute 'to-port'"),
        (variadic().replace('type="Const"', "").encode(), "<layer> lacks the attribute 'type'"),
        (variadic().replace('<port id="0"', "<port").encode(), "<port> lacks the attribute 'id'"),
        (variadic(dims=(10**19, 2)).encode(), "must be an integer from -1"),
        (variadic(dims=(-2, 2)).encode(), "<dim> is '-2'"),
        (variadic(dims=(1,) * 65).encode(), "more than 64 dimensions"),
        (variadic().replace("<dim>6</dim>", "<dim>6_0</dim>").encode(), "<dim> is '6_0'"),
        (variadic().replace("<dim>6</dim>", "<dim>0x6</dim>").encode(), "<dim> is '0x6'"),
        (variadic().replace("<dim>6</dim>", "<dim/>").encode(), "<dim> is ''"),
        (b'<net version="11">' + b"<a>" * 200_000, "nests elements deeper than"),
        (b'<net version="11"><layers>' + b"<a/>" * 2_000_000, "tags and texts"),
        (b'<net version="11" a="' + b"a" * (9 << 20), "longer than 4 MiB"),
        (
            net([f'<layer id="{i}" type="A"/>' for i in range(100_001)], []).encode(),
            "100000 layers",
        ),
        (net([], [edge((0, 0), (i, 0)) for i in range(250_001)]).encode(), "250000 edges"),
    ],
)
def test_a_hostile_file_is_one_clear_error(content: bytes, message: str, scanned: Scan) -> None:
    start = time.process_time()
    with pytest.raises(InvalidArgumentError) as error:
        scanned(content)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "model.xml: " in str(error.value)
    assert time.process_time() - start < 3


def test_nested_bodies_end(scanned: Scan) -> None:
    xml = '<net name="n" version="11">'
    xml += '<layers><layer id="0" name="" type="Loop"><body>' * 40
    with pytest.raises(InvalidArgumentError, match="deeper"):
        scanned(xml)


def test_memory_does_not_grow_with_a_file_of_nothing(scanned: Scan) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    filler = b"<x>" + b"filler " * (8 << 20) + b"</x>"
    with pytest.raises(InvalidArgumentError):
        scanned(b'<net version="11">' + filler)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.xml", Path("/dev/zero")):
        with pytest.raises(InvalidArgumentError, match="is not a file"):
            scan(path)


VALID = variadic().encode()


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(VALID) - 1),
            st.integers(0, 8),
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([b"-1", b"9" * 25, b"<", b'"', b"</net>", b"<dim>", b"Split"]),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    cut=st.integers(0, 24),
)
def test_a_mutated_file_gives_findings_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, bytes]], cut: int
) -> None:
    content = VALID
    for at, length, new in edits:
        content = content[:at] + new + content[at + length :]
    folder = tmp_path_factory.getbasetemp()
    (folder / "fuzz.xml").write_bytes(content)
    (folder / "fuzz.bin").write_bytes(weights()[:cut])
    try:
        found = scan(folder / "fuzz.xml")
    except InvalidArgumentError as error:
        message = str(error)
    else:
        message = "".join(f.problem + f.unknown for f in found)
        for site in found:
            for desc in site.descriptors:
                dml.validate(desc)
    assert "\n" not in message.replace(repr("\n"), "")
