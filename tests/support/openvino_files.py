"""OpenVINO IR files, written layer by layer, and hostile files."""

from collections.abc import Callable

import numpy as np

from dmlsplit.frontends import SplitSite

INT64 = np.int64


def piece_sizes(site: SplitSite) -> list[tuple[int, ...]]:
    return [tensor.sizes for tensor in site.state.descriptor.output_tensors]


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


def edge(source: tuple[int, int], target: tuple[int, int | str]) -> str:
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
    output_ports = "".join(port(3 + i, shape, precision) for i, shape in enumerate(outputs))
    split = layer(
        3,
        "VariadicSplit",
        inputs=port(0, dims, precision) + port(1, None, "I64") + port(2, (2,), "I64"),
        outputs=output_ports,
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


# Files that are not IR, and hostile files.

BOMB = '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaaaaaaaa">]><net version="11">&a;</net>'


HOSTILE: list[tuple[bytes, str]] = [
    (b"", "not well-formed"),
    (b"not xml", "not well-formed"),
    (b'<net version="11"', "not well-formed"),
    (variadic()[:400].encode(), "not well-formed"),
    (b"<html/>", "root <html>; it must be <net>"),
    (b"<net/>", "a <net> lacks the attribute 'version'"),
    (b'<net version="7"/>', "net version is '7'; it must be 10 or 11. Fix: convert"),
    (b'<net version="12"/>', "net version is '12'"),
    (BOMB.encode(), "declares a DOCTYPE"),
    (b" " * 65530 + BOMB.encode()[21:], "declares a DOCTYPE"),
    (BOMB.replace("DOCTYPE", "doctype").encode(), "not well-formed"),
    (BOMB.encode("utf-16"), "declares a DOCTYPE"),
    (BOMB.encode("utf-16-be"), "declares a DOCTYPE"),
    (BOMB.encode("utf-32"), "not well-formed"),
    (BOMB.encode("cp037"), "not well-formed"),
    (BOMB.replace('"1.0"', '"1.0" encoding="cp037"').encode("cp037"), "not well-formed"),
    (BOMB.replace('"1.0"', '"1.0" encoding="utf-7"').encode("utf-7"), "declares a DOCTYPE"),
    (b'<?xml version="1.0"?><net version="11">\xff</net>', "not well-formed"),
    (variadic().replace('id="2"', 'id="1"').encode(), "two layers have the id '1'"),
    (variadic(edges=[EDGES[0], EDGES[0]]).encode(), "two edges lead to port '0' of layer '3'"),
    (variadic().replace('to-port="1"', "").encode(), "<edge> lacks the attribute 'to-port'"),
    (variadic().replace('type="Const"', "").encode(), "<layer> lacks the attribute 'type'"),
    (variadic().replace('<port id="0"', "<port").encode(), "<port> lacks the attribute 'id'"),
    (variadic(dims=(10**19, 2)).encode(), "must be an integer from -1"),
    (variadic(dims=(-2, 2)).encode(), "<dim> is '-2'"),
    (variadic().replace("<dim>6</dim>", "<dim>6_0</dim>").encode(), "<dim> is '6_0'"),
    (variadic().replace("<dim>6</dim>", "<dim>0x6</dim>").encode(), "<dim> is '0x6'"),
    (variadic().replace("<dim>6</dim>", "<dim/>").encode(), "<dim> is ''"),
    (b'<net version="11">' + b"<a>" * 200_000, "nests elements deeper than"),
    (b'<net version="11" a="' + b"a" * (100 << 20), "not well-formed"),
]
