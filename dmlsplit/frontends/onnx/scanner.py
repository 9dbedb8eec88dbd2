"""Finds every Split and SplitToSequence of an ONNX file.

A `Reader` walks the mapped file, so that memory stays near the size of the graph. This process
never calls ONNX's own shape inference, checker or runtimes: small malformed models crash them.
"""

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dmlsplit.checks import file_name, instance
from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about, one_line
from dmlsplit.frontends.onnx import child
from dmlsplit.frontends.onnx.dimensions import FixedSizes
from dmlsplit.frontends.onnx.walk import walked
from dmlsplit.frontends.site import Cause, SplitSite
from dmlsplit.mistaken import recognised


def scan(
    path: str | os.PathLike[str], dimensions: FixedSizes | None = None, infer_shapes: bool = False
) -> list[SplitSite]:
    """Find every split of an ONNX model: main graph, nested bodies and functions.

    Parameters
    ----------
    path
        The model. Its external data is not opened.
    dimensions
        Sizes for its dynamic dimensions.
    infer_shapes
        Let ONNX's shape inference find missing shapes, if onnx is installed. It runs in a process
        of its own, with limits on time and memory.

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
    infers = infer_shapes and child.is_installed()
    with about(name), recognised(name, binary=True), _mapped(name) as data:
        sites, _ = walked(name, data, dimensions, is_last=not infers)
        remark = ""
        if infers and any(map(_has_gap, sites)):
            try:
                with child.kept() as process:
                    inferred = process.answer(name, dimensions.given)
                return walked(name, inferred, dimensions)[0]
            except UnsupportedError as error:
                remark = f"; onnx's shape inference failed: {error.message}"
        if infers and dimensions.given:
            sites, _ = walked(name, data, dimensions)
    return [replace(s, unknown=s.unknown + remark) if _has_gap(s) else s for s in sites]


def _has_gap(site: SplitSite) -> bool:
    """Whether shape inference may make a site known."""
    return bool(site.unknown) and site.cause in (Cause.UNTRACKED, Cause.TYPE, Cause.LENGTHS)


@contextmanager
def _mapped(name: str) -> Iterator[mmap.mmap]:
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
