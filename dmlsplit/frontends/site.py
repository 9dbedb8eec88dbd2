"""A split that a scan found in a file."""

from dataclasses import dataclass
from enum import StrEnum

from dmlsplit.directml.operator import SplitOperatorDesc


class Cause(StrEnum):
    """Why a split is unknown; each cause has its own remedy."""

    DYNAMIC = "dynamic input"
    LENGTHS = "computed split lengths"
    UNTRACKED = "a shape that is not tracked"
    TYPE = "an unknown data type"
    WEIGHTS = "weights outside the model"
    OPERATION_SET = "unknown operation set"
    COUNT = "too many pieces"
    ORDER = "a cycle"
    CALLER = "an attribute that a caller gives"


class NotKnownError(Exception):
    """The files do not determine a descriptor; the text says why."""

    def __init__(self, reason: str, cause: Cause) -> None:
        super().__init__(reason)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class SplitSite:
    """A split that a scan found in a file.

    Attributes
    ----------
    file : str
        The file as the caller named it.
    format : str
        ``onnx`` or ``openvino`` for a model of that kind; otherwise empty.
    place : str
        The path to the node through graphs, nested bodies and functions.
    node : str
        The node's name; may be empty.
    index : int
        The position of the node within its graph.
    operator : str
        The operator with its version, such as ``Split-13`` or ``VariadicSplit-1``.
    descriptors : tuple of SplitOperatorDesc
        The node's descriptor; empty if it is unknown or invalid, or if all outputs are empty.
    problem : str
        The rule of its own operator that the node breaks; empty if it breaks none.
    unknown : str
        Why the descriptors are unknown, such as a dynamic size; empty if they are known.
    cause : Cause
        The kind of reason in `unknown`; meaningless if that is empty.
    smallest : SplitOperatorDesc or None
        If `unknown` is set, the descriptor for the smallest sizes above 0. An unknown type is
        FLOAT32 and an unknown rank 4, which every level accepts. So a level that refuses its
        data type, rank or number of elements refuses the node for every size.
    missing : tuple of (str, int)
        The sizes that would make it known, each with its smallest value: names of dimensions, or
        ``VALUE.AXIS`` in ONNX. Empty if sizes alone would not make it known.
    scales : bool
        Whether `smallest` is exact except for the sizes in `missing`, none of which is the axis.
        For any sizes, the split then has their product times as many elements.
    warnings : tuple of str
        Valid settings that are not portable or are probably a mistake.
    element_type : str
        The element type as the file names it, such as ``BFLOAT16``; empty if unknown.
    shape : tuple of int or str
        The shape of the input, with a string for a dynamic size; empty if unknown.
    axis : int
        The axis in `shape`, counted from the front; -1 if unknown.
    pieces : tuple of int
        The sizes of all outputs along the axis, including empty ones; empty if unknown.
    unused : tuple of int
        The indices of the outputs that no node and no graph output of the model uses.
    value : str
        The name of the value that is split, in ONNX.
    meets : tuple of str
        The element-wise nodes that combine pieces of the split again, as in GLU.
    implied : str
        Why ONNX Runtime turns the node, which is not a split, into one; empty for a split.
    sized_by : str
        The source of the number of pieces in ONNX: ``split``, ``num_outputs``, or ``outputs`` if
        the node has neither; empty for other formats.
    path : tuple of int or str
        The unique path to the node (`place` need not be unique): index, attribute and body number
        of each enclosing node, then the node's index.
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
    missing: tuple[tuple[str, int], ...] = ()
    scales: bool = False
    warnings: tuple[str, ...] = ()
    element_type: str = ""
    shape: tuple[int | str, ...] = ()
    axis: int = -1
    pieces: tuple[int, ...] = ()
    unused: tuple[int, ...] = ()
    value: str = ""
    meets: tuple[str, ...] = ()
    implied: str = ""
    sized_by: str = ""
    path: tuple[int | str, ...] = ()
    format: str = ""
