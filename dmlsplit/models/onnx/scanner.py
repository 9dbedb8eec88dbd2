"""Finds every Split and SplitToSequence of an ONNX file, and the files of its weights.

A `Reader` walks the mapped file, so that memory stays near the size of the graph. This process
never calls ONNX's own shape inference, checker or runtimes: small malformed models crash them.
"""

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from dmlsplit.checks import instance, path_text
from dmlsplit.errors import InvalidArgumentError, path_in_errors, unreadable_file_error
from dmlsplit.files.atomic import refuse_inputs
from dmlsplit.files.kinds import name_kind_in_errors
from dmlsplit.models.limits import MAX_FIELDS
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.model_scan import ModelScan, scan_model
from dmlsplit.models.onnx.protobuf import Function, Graph, Model, Node, Tensor
from dmlsplit.models.onnx.reader import Reader, Span, WireError
from dmlsplit.models.site import SplitSite

# The most bytes of a message that protobuf parses. This scan reads larger files, runtimes do not.
MAX_PROTOBUF_BYTES = 2**31 - 1


def scan(path: str | os.PathLike[str], dimensions: FixedSizes | None = None) -> list[SplitSite]:
    """Find every split of an ONNX model: main graph, nested bodies and functions.

    Parameters
    ----------
    path : str or os.PathLike
        The model. Its external data is not opened.
    dimensions : FixedSizes, optional
        Sizes for the dynamic dimensions of its inputs.

    Returns
    -------
    list of SplitSite
        In the order of the file. A function is scanned once for each combination of shapes and
        attributes that it is called with, or once without them if it is never called.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be read, is not an ONNX model, or nests too deeply, or if it contradicts
        a size in `dimensions`.

    See Also
    --------
    FixedSizes : Sizes for dynamic dimensions.
    dmlsplit.frontends.SplitSite : A split that a scan found.

    Examples
    --------
    >>> import onnx
    >>> text = '''<ir_version: 10, opset_import: ["" : 18]>
    ... net (float[6] x) => (float[3] a, float[3] b) {
    ...   a, b = Split <axis = 0, num_outputs = 2> (x)
    ... }'''
    >>> onnx.save(onnx.parser.parse_model(text), "model.onnx")
    >>> [(site.operator, site.state.descriptor.split_sizes) for site in scan("model.onnx")]
    [('Split-18', (3, 3))]
    """
    return scan_declarations(path, dimensions).sites


def scan_declarations(
    path: str | os.PathLike[str], dimensions: FixedSizes | None = None
) -> ModelScan:
    """What `scan` finds in a model, and the declared shapes that the sizes contradict."""
    dimensions = FixedSizes({}) if dimensions is None else dimensions
    instance("dimensions", dimensions, FixedSizes)
    name = path_text(path)
    with path_in_errors(name), name_kind_in_errors(name, binary=True), _mapped(name) as data:
        result = scan_model(name, data, dimensions)
        if len(data) <= MAX_PROTOBUF_BYTES:
            return result
        sites = [replace(site, exceeds_protobuf=True) for site in result.sites]
        return result._replace(sites=sites)


@contextmanager
def _mapped(name: str) -> Iterator[mmap.mmap]:
    """The bytes of a model, a regular file that is not empty."""
    try:
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise unreadable_file_error(error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            problem = "is empty" if stat.S_ISREG(status.st_mode) else "is not a regular file"
            raise InvalidArgumentError(f"{problem}; it must be an ONNX model")
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        os.close(descriptor)


def weight_files(model: Path) -> list[Path]:
    """The files that a model names for its weights, once each; they need not exist.

    Of a model that is not read to its end, these are the files that come before the fault.
    """
    names: dict[str, None] = {}
    with suppress(InvalidArgumentError, WireError, RecursionError), _mapped(str(model)) as data:
        reader = Reader(data, MAX_FIELDS)
        top = reader.read(Model, Span(0, len(data)))
        bodies: list[Graph | Function] = [reader.read(Graph, span) for span in top.graph]
        for body in (*bodies, *top.functions):
            for tensor in _tensors(reader, body):
                if tensor.location is not None and "\0" not in tensor.location:
                    names[tensor.location] = None
    return [model.parent / name for name in names]


def check_output(model: Path, output: Path, *, overwrite: bool) -> None:
    """Refuse to write a changed copy of a model over a file, or away from its weights."""
    weights = weight_files(model)
    refuse_inputs(output, [model, *weights])
    if output.exists() and not overwrite:
        raise InvalidArgumentError(f"{output} exists; it is not replaced. Fix: add --overwrite")
    if weights and output.parent.resolve() != model.parent.resolve():
        name = output.name if output.name != model.name else f"{model.stem}.fixed.onnx"
        raise InvalidArgumentError(
            f"{model} keeps its weights in other files, which must be in the folder of the written "
            f"model. Fix: give --write-fixed {model.parent / name}"
        )


def _tensors(reader: Reader, body: Graph | Function) -> Iterator[Tensor]:
    """The initializers and constants of a graph or function, and of the bodies in it."""
    if isinstance(body, Graph):
        yield from body.initializer
        yield from chain.from_iterable(sparse.tensors for sparse in body.sparse_initializer)
    for span in body.node:
        for attribute in reader.read(Node, span).attribute:
            yield from filter(None, (attribute.t, *attribute.tensors))
            for sparse in filter(None, (attribute.sparse_tensor, *attribute.sparse_tensors)):
                yield from sparse.tensors
            for inner in attribute.bodies:
                yield from _tensors(reader, reader.read(Graph, inner))
