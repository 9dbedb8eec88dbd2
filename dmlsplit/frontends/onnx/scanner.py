"""Finds every Split and SplitToSequence of an ONNX file.

A `Reader` walks the mapped file, so that memory stays near the size of the graph. This process
never calls ONNX's own shape inference, checker or runtimes: small malformed models crash them.
"""

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from dmlsplit.checks import file_name, instance
from dmlsplit.errors import InvalidArgumentError, about, one_line
from dmlsplit.file_kinds import identifying
from dmlsplit.frontends.onnx.dimensions import FixedSizes
from dmlsplit.frontends.onnx.walk import scan_model
from dmlsplit.frontends.site import SplitSite


def scan(path: str | os.PathLike[str], dimensions: FixedSizes | None = None) -> list[SplitSite]:
    """Find every split of an ONNX model: main graph, nested bodies and functions.

    Parameters
    ----------
    path
        The model. Its external data is not opened.
    dimensions
        Sizes for its dynamic dimensions.

    Returns
    -------
    list of SplitSite
        In the order of the file. A function is scanned once for each combination of shapes and
        attributes that it is called with, or once without them if it is never called.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be read, is not an ONNX model, or nests too deeply.
    """
    name = file_name(path)
    dimensions = FixedSizes({}) if dimensions is None else dimensions
    instance("dimensions", dimensions, FixedSizes)
    with about(name), identifying(name, binary=True), mapped(name) as data:
        return scan_model(name, data, dimensions)


@contextmanager
def mapped(name: str) -> Iterator[mmap.mmap]:
    """The bytes of a model, a regular file that is not empty."""
    try:
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        why = one_line(error, with_path=False)
        raise InvalidArgumentError(f"cannot be read: {why}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            what = "is empty" if stat.S_ISREG(status.st_mode) else "is not a regular file"
            raise InvalidArgumentError(f"{what}; it must be an ONNX model")
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        os.close(descriptor)
