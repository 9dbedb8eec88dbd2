"""A split that a scan found in a file."""

from __future__ import annotations

from dataclasses import dataclass

from dmlsplit.directml.operator import SplitOperatorDesc


@dataclass(frozen=True, slots=True)
class SplitSite:
    """One split that a scan found in a file.

    Attributes
    ----------
    file : str
        The file, as it was named to the scan.
    place : str
        Path to the node through graphs, nested bodies and functions.
    node : str
        The node's own name; may be empty.
    index : int
        Position of the node within its graph.
    operator : str
        Operator with version, such as ``Split-13`` or ``VariadicSplit-1``.
    descriptors : tuple of SplitOperatorDesc
        What the node becomes: one descriptor; none if it is unknown, if the operator's own
        rules refuse the node, or if every output is empty.
    problem : str
        Why the node breaks its operator's own rules; empty if it does not.
    unknown : str
        Why the descriptors are unknown, such as a dynamic size; else empty.
    warnings : tuple of str
        What is legal but likely to be a mistake, or not portable.
    element_type : str
        The element type by its name in the file, such as ``BFLOAT16``; empty if unknown.
    shape : tuple of int
        Shape of the input, as in the file; empty if unknown.
    axis : int
        The axis in `shape`, counted from the front; -1 if unknown.
    pieces : tuple of int
        Sizes of all outputs along the axis, the empty ones included; empty if unknown.
    """

    file: str
    place: str
    node: str
    index: int
    operator: str
    descriptors: tuple[SplitOperatorDesc, ...] = ()
    problem: str = ""
    unknown: str = ""
    warnings: tuple[str, ...] = ()
    element_type: str = ""
    shape: tuple[int, ...] = ()
    axis: int = -1
    pieces: tuple[int, ...] = ()


class NotKnownError(Exception):
    """Why a descriptor cannot be known from the files."""
