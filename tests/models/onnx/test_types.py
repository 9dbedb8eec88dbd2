"""Every type of every input of every version, against the schemas, through every entry point."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends import Invalid
from dmlsplit.frontends.onnx import scan, split, split_to_sequence
from tests.support.onnx_graphs import model, node, value

KINDS = {name: kind for name, kind in TensorProto.DataType.items() if kind}
SCHEMAS = {
    f"{schema.name}-{schema.since_version}": schema
    for schema in onnx.defs.get_all_schemas_with_history()
    if not schema.domain and schema.name in ("Split", "SplitToSequence")
}
# Types of the data and of the sizes; None if the sizes are not given.
Types = tuple[str, str | None]


def dtype(kind: str) -> Any:
    return helper.tensor_dtype_to_np_dtype(KINDS[kind])


def ones(kind: str) -> Any:
    return np.array(["1", "1"] if kind == "STRING" else [1, 1]).astype(dtype(kind))


def every(schema: Any) -> Iterator[Types]:
    return product(KINDS, [None, *(KINDS if len(schema.inputs) > 1 else ())])


def published(schema: Any) -> set[Types]:
    """The combinations of types that the schema allows."""
    parameters = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    inputs = [(i.type_str, parameters.get(i.type_str, {i.type_str})) for i in schema.inputs]
    (data_name, data_types), (split_name, split_types) = (*inputs, ("", set()))[:2]
    return {
        (data, sizes)
        for data, sizes in every(schema)
        if f"tensor({data.lower()})" in data_types
        and (sizes is None or f"tensor({sizes.lower()})" in split_types)
        and (sizes is None or data_name != split_name or sizes == data)
    }


def options(schema: Any, sizes: str | None) -> dict[str, int]:
    unsized = sizes is None and schema.name == "Split" and schema.since_version >= 18
    return {"num_outputs": 2} if unsized else {}


def by_arrays(schema: Any, folder: Path) -> set[Types]:
    def run(data: str, sizes: str | None) -> None:
        lengths, opset = None if sizes is None else ones(sizes), schema.since_version
        if schema.name == "SplitToSequence":
            split_to_sequence(ones(data), lengths, opset=opset)
            return
        count = {"output_count": 2} | options(schema, sizes)
        split(ones(data), lengths, opset=opset, **count)

    return accepted(schema, run)


def accepted(schema: Any, run: Callable[[str, str | None], None]) -> set[Types]:
    type_pairs = set()
    for data, sizes in every(schema):
        try:
            run(data, sizes)
        except InvalidArgumentError:
            continue
        type_pairs.add((data, sizes))
    return type_pairs


def outputs(schema: Any, index: int) -> list[str]:
    return [f"a{index}", f"b{index}"] if schema.name == "Split" else [f"s{index}"]


def by_scan(schema: Any, folder: Path, constant: bool) -> set[Types]:
    pairs = list(every(schema))
    nodes = []
    for index, (data, sizes) in enumerate(pairs):
        names = f"x_{data}" if sizes is None else f"x_{data} sizes_{sizes}"
        output_names = outputs(schema, index)
        nodes.append(
            node(schema.name, names, " ".join(output_names), axis=0, **options(schema, sizes))
        )
    inputs = [value(f"x_{name}", [2], kind) for name, kind in KINDS.items()]
    if not constant:
        inputs += [value(f"sizes_{name}", [2], kind) for name, kind in KINDS.items()]
    tensors = [numpy_helper.from_array(ones(name), f"sizes_{name}") for name in KINDS]
    opsets = {"": schema.since_version}
    content = model(nodes, inputs, initializers=tuple(tensors) * constant, opsets=opsets)
    (folder / "m.onnx").write_bytes(content.SerializeToString())
    sites = scan(folder / "m.onnx")
    return {
        pair for pair, site in zip(pairs, sites, strict=True) if not isinstance(site.state, Invalid)
    }


WAYS = [by_arrays, partial(by_scan, constant=True), partial(by_scan, constant=False)]


@pytest.mark.parametrize("way", WAYS, ids=["arrays", "constants", "computed sizes"])
@pytest.mark.parametrize("version", SCHEMAS)
def test_the_accepted_types_are_those_of_the_schema(
    version: str, way: Callable[[Any, Path], set[Types]], tmp_path: Path
) -> None:
    schema = SCHEMAS[version]
    assert published(schema)
    assert way(schema, tmp_path) == published(schema)
