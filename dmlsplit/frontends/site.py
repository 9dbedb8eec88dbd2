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
        The way to the node through graphs, nested bodies and functions.
    node : str
        The node's own name; may be empty.
    index : int
        Position of the node within its graph.
    operator : str
        Operator with version, such as ``Split-13`` or ``VariadicSplit-1``.
    descriptors : tuple of SplitOperatorDesc
        What the node becomes: one for a plain split, none if that is unknown, refused by
        the operator's own rules, or if every piece is empty.
    problem : str
        Why the node breaks its operator's own rules; empty if it does not.
    unknown : str
        What keeps the descriptors from being known, such as a dynamic size; else empty.
    warnings : tuple of str
        What is legal but will surprise.
    element_type : str
        The element type by its name in the file, such as ``BFLOAT16``; empty if unknown.
    shape : tuple of int
        Of the input, as the file has it; empty if unknown.
    axis : int
        The axis in `shape`, counted from the front; -1 if unknown.
    pieces : tuple of int
        Sizes of all pieces along the axis, the empty ones included; empty if unknown.
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
