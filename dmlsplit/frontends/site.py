"""A split that a scan found in a file."""

from dataclasses import dataclass
from enum import StrEnum

from dmlsplit.directml.operator import SplitOperatorDesc


class Cause(StrEnum):
    """What makes a split unknown. Each has a remedy of its own."""

    DYNAMIC = "dynamic input"
    LENGTHS = "computed split lengths"
    UNTRACKED = "a shape that is not tracked"
    WEIGHTS = "weights outside the model"
    OPERATION_SET = "unknown operation set"
    COUNT = "too many pieces"
    ORDER = "a cycle"
    CALLER = "an attribute that a caller gives"


class NotKnownError(Exception):
    """Why a descriptor cannot be known from the files."""

    def __init__(self, reason: str, cause: Cause) -> None:
        super().__init__(reason)
        self.cause = cause


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
    cause : Cause
        What kind of reason `unknown` is; of no meaning where that is empty.
    smallest : SplitOperatorDesc or None
        Where `unknown` says why the descriptor is not known: the one that the node becomes if
        every unknown size is the smallest above 0. What else is unknown is what every level
        accepts: FLOAT32, 4 dimensions. So a level that refuses its data type, its dimension
        count or its number of elements refuses the node for every size.
    warnings : tuple of str
        What is legal but likely to be a mistake, or not portable.
    element_type : str
        The element type by its name in the file, such as ``BFLOAT16``; empty if unknown.
    shape : tuple of int or str
        Shape of the input, as in the file; a text is a dynamic size; empty if unknown.
    axis : int
        The axis in `shape`, counted from the front; -1 if unknown.
    pieces : tuple of int
        Sizes of all outputs along the axis, the empty ones included; empty if unknown.
    meets : tuple of str
        The element-wise nodes in which pieces of the split meet again, as in GLU.
    implied : str
        Why the node, which is no split, becomes one in ONNX Runtime; empty for a split.
    sized_by : str
        What says how many pieces there are: ``split``, ``num_outputs``, or ``outputs`` where
        the node has neither of them; empty if unknown, or another operator's.
    path : tuple of int or str
        The node's way through the file, unlike `place` never that of another node: its index,
        after the index of each outer node with the attribute and the position of the body.
    """

    file: str
    place: str
    node: str
    index: int
    operator: str
    descriptors: tuple[SplitOperatorDesc, ...] = ()
    problem: str = ""
    unknown: str = ""
    cause: Cause = Cause.DYNAMIC
    smallest: SplitOperatorDesc | None = None
    warnings: tuple[str, ...] = ()
    element_type: str = ""
    shape: tuple[int | str, ...] = ()
    axis: int = -1
    pieces: tuple[int, ...] = ()
    meets: tuple[str, ...] = ()
    implied: str = ""
    sized_by: str = ""
    path: tuple[int | str, ...] = ()
