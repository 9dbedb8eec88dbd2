"""A split that a scan found in a file."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.messages import Note

# A size, the name of a dynamic one, or None for a dynamic one without a name.
Size = int | str | None
# Names of dimensions that every shell takes literally.
_PLAIN_DIMENSION = re.compile(r"(?![-?])[\w ./:+,@#()\[\]{}|<>&;*?~=-]{1,200}")


def dimension_name(value: str, axis: int, name: str | None) -> str:
    """The name of a dynamic dimension of a value, if every shell takes it, or else VALUE.AXIS."""
    if name is not None and _PLAIN_DIMENSION.fullmatch(name):
        return name
    return f"{value}.{axis}" if value else f"dimension {axis}"


class Cause(StrEnum):
    """Why a split is unknown; each cause has its own remedy."""

    DYNAMIC = "dynamic input"
    LENGTHS = "computed split lengths"
    AXIS = "a computed axis"
    UNTRACKED = "a shape that is not tracked"
    INFERABLE = "a shape that ONNX infers"
    TYPE = "an unknown data type"
    WEIGHTS = "weights outside the model"
    OPERATION_SET = "unknown operation set"
    COUNT = "too many pieces"
    ORDER = "a cycle"
    CALLER = "an attribute that a caller gives"
    LIMIT = "a limit of dmlsplit"


class ProviderRemark(Note):
    """A warning that a rule of ONNX Runtime's DirectML provider also states."""

    # The id of the rule.
    rule: str

    def __new__(cls, fault: str, rule: str = "", fix: str = "") -> Self:
        """What is wrong, the rule, and the fix."""
        warning = super().__new__(cls, fault, fix)
        warning.rule = rule
        return warning


class UnknownSplitError(Exception):
    """The files do not determine a descriptor; the text says why."""

    def __init__(self, reason: str, cause: Cause) -> None:
        super().__init__(reason)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Known:
    """A split that the file determines.

    Attributes
    ----------
    descriptor : SplitOperatorDesc or None
        The packed split without its empty outputs; None if all of them are empty.
    pieces : tuple of int
        The sizes of the outputs along the axis, empty outputs included; () for a descriptor that is
        no node of a model.

    See Also
    --------
    Unknown : The state of a split that depends on more than the file.
    Invalid : The state of a node that breaks a rule of its own operator.

    Examples
    --------
    >>> from dmlsplit.frontends import dxdispatch
    >>> (site,) = dxdispatch.scan("tests/data/dispatch.json")
    >>> print(site.state.descriptor)
    SPLIT axis 1: FLOAT32[2,5] -> FLOAT32[2,3], FLOAT32[2,2]
    """

    descriptor: SplitOperatorDesc | None = None
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Invalid:
    """A node that breaks a rule of its own operator.

    Attributes
    ----------
    problem : str
        The broken rule.
    is_loaded : bool
        Whether ONNX Runtime loads the model all the same, and fails only when it runs the node.

    See Also
    --------
    Known : The state of a split that the file determines.
    Unknown : The state of one that depends on more than the file.

    Examples
    --------
    >>> import onnx
    >>> from dmlsplit.frontends import onnx as front_end
    >>> text = '''<ir_version: 10, opset_import: ["" : 18]>
    ... net (float[6] x) => (float[3] a, float[3] b) {
    ...   a, b = Split <axis = 0, num_outputs = 3> (x)
    ... }'''
    >>> onnx.save(onnx.parser.parse_model(text), "model.onnx")
    >>> (site,) = front_end.scan("model.onnx")
    >>> site.state.problem
    'Split-18: num_outputs is 3 for 2 outputs; the two must be equal'
    """

    problem: str
    is_loaded: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A split that depends on more than the file.

    Attributes
    ----------
    reason : str
        Why it is unknown, in words.
    cause : Cause
        The kind of reason, such as a dynamic size.
    smallest_descriptor : SplitOperatorDesc or None
        The descriptor for the smallest sizes above 0. An unknown type is FLOAT32 and an unknown
        rank 4, which every level accepts. So a level that refuses its data type, rank or number of
        elements refuses the node for every size.
    pieces : tuple of int, or None
        The sizes of the outputs along the axis, empty outputs included; None if they are not known
        either.
    missing : tuple of (str, int)
        The sizes of a model's inputs that would make it known, each with a value that suits every
        split of the file: names of dimensions, or ``INPUT.AXIS`` in ONNX. For computed split
        lengths, the sizes from which they may follow. Empty if these alone would not make it known.
    only_count_varies : bool
        Whether `smallest_descriptor` is exact except for dynamic sizes, none of which is the axis.
        For any sizes, the split then has their product times as many elements.
    example_shape : tuple of int, or None
        In ONNX, a shape of the input that suits the split, with the sizes in `missing`; None if the
        rank is unknown.

    See Also
    --------
    Known : The state of a split that the file determines.
    Invalid : The state of a node that breaks a rule of its own operator.

    Examples
    --------
    >>> import onnx
    >>> from dmlsplit.frontends import onnx as front_end
    >>> text = '''<ir_version: 10, opset_import: ["" : 18]>
    ... net (float[n] x) => (float[h] a, float[h] b) {
    ...   a, b = Split <axis = 0, num_outputs = 2> (x)
    ... }'''
    >>> onnx.save(onnx.parser.parse_model(text), "model.onnx")
    >>> (site,) = front_end.scan("model.onnx")
    >>> site.state.missing
    (('n', 2),)
    """

    reason: str
    cause: Cause
    smallest_descriptor: SplitOperatorDesc | None = None
    pieces: tuple[int, ...] | None = None
    missing: tuple[tuple[str, int], ...] = ()
    only_count_varies: bool = False
    example_shape: tuple[int, ...] | None = None


State = Known | Invalid | Unknown
# The path to a node, or to a graph; see `SplitSite.path`.
NodePath = tuple[int | str, ...]
# The step of a path from a node that calls a function, or from the name of one that no node calls,
# into its body.
FUNCTION_BODY = "()"


class Taken(NamedTuple):
    """A node that takes one piece out of a sequence: SequenceAt at a constant position."""

    path: NodePath
    # The index of the piece; a negative one counts from the end.
    position: int


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """What decides whether a runtime loads an ONNX model, whatever its splits are.

    Attributes
    ----------
    file : str
        The file as the caller named it.
    opset, ir_version : int
        The version of ONNX's operators that it imports, and its IR version; 0 if it has none.
    fault : str or None
        As `SplitSite.model_fault`.
    """

    file: str
    opset: int
    ir_version: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class SplitSite:
    """A split that a scan found in a file.

    The attributes are in five groups, here each with its first one: where the node is (`file`),
    what it is (`operator`), which values and nodes are around it (`input_name`), whether it runs
    (`never_runs`), and what holds for the whole model (`ir_version`). The last three are about ONNX
    only.

    Attributes
    ----------
    file : str
        The file as the caller named it; empty for a descriptor without a file.
    format : str
        ``onnx`` or ``openvino`` for a model of that kind; otherwise empty.
    graph : str
        The graph, nested body or function that has the node, such as ``net/If.then_branch``.
    node : str
        The node's name; may be empty.
    index : int
        The position of the node within its graph.
    path : tuple of int or str
        The unique path to the node (names of graphs need not be): index, attribute and body number
        of each enclosing node, then the node's index. A function's body is ``()`` of its caller.
    operator : str
        The operator with its version, such as ``Split-13`` or ``VariadicSplit-1``.
    state : Known, Invalid or Unknown
        What the file says about the split.
    warnings : tuple of str
        Valid settings that are not portable or are probably a mistake.
    element_type : str or None
        The element type as the file names it, such as ``BFLOAT16``; None if unknown.
    shape : tuple of Size, or None
        The shape of the input; None if its rank is unknown.
    axis : int or None
        The axis in `shape`, counted from the front; None if unknown.
    sized_by : str
        The source of the number of pieces in ONNX: ``split``, ``chunk`` if that is a scalar,
        ``num_outputs``, or ``outputs`` if the node has none of them; empty for other formats.
    keeps_axis : bool or None
        Whether the pieces keep the axis. None for SplitToSequence with keepdims=0 beside a scalar
        split: ONNX keeps it, ONNX Runtime drops it, or fails if a piece has another size than 1.
    frozen : tuple of (str, int), or None
        The name of the dynamic axis, and the only size of it that the constant sizes of the pieces
        fit. The rest of the site is for this size.
    input_name : str
        The name of the value that is split, in ONNX.
    input_path : tuple of int or str
        The path to the graph that has this value, with which `path` begins.
    unused_outputs : tuple of int
        The indices of the outputs that no node and no graph output of the model uses.
    recombined_by : tuple of str
        The element-wise nodes that combine pieces of the split again, as in GLU.
    neighbours : tuple of str
        The operators among Cast, Reshape, Shape, Squeeze, Transpose and Unsqueeze that make its
        input or take its outputs.
    taken : tuple of Taken
        The SequenceAt nodes that take pieces of a SplitToSequence at constant positions; empty if
        anything else uses the sequence too.
    never_runs : str or None
        Why the node never runs: it is in a branch of an If, or in the body of a Loop, that a
        constant switches off, or in a function that no node calls.
    is_folded : bool
        Whether all inputs of the node are constants, so that ONNX Runtime computes it when it loads
        the model.
    is_shape : bool
        Whether the node splits the shape of a value, which ONNX Runtime keeps on the CPU.
    is_overridable : bool
        Whether what is known follows from the default of a graph input of ONNX, which a caller may
        override.
    ir_version, opset : int
        The IR version of the model, and the version of ONNX's operators that it imports; 0 for
        other formats.
    model_fault : str or None
        Why ONNX Runtime does not load the model, whatever its splits are: a declared type that
        contradicts a node, or one name for two values.
    exceeds_protobuf : bool
        Whether the file is too large for protobuf, with which the package onnx reads it.

    See Also
    --------
    Known, Unknown, Invalid : What `state` may be.

    Examples
    --------
    >>> from dmlsplit.frontends import dxdispatch
    >>> (site,) = dxdispatch.scan("tests/data/dispatch.json")
    >>> site.node, site.operator, type(site.state).__name__
    ('split', 'DML_OPERATOR_SPLIT', 'Known')
    """

    file: str
    graph: str
    node: str
    index: int
    operator: str
    state: State = Known()
    warnings: tuple[str, ...] = ()
    element_type: str | None = None
    shape: tuple[Size, ...] | None = None
    axis: int | None = None
    unused_outputs: tuple[int, ...] = ()
    input_name: str = ""
    input_path: NodePath = ()
    recombined_by: tuple[str, ...] = ()
    sized_by: str = ""
    path: NodePath = ()
    format: str = ""
    opset: int = 0
    model_fault: str | None = None
    never_runs: str | None = None
    is_folded: bool = False
    keeps_axis: bool | None = True
    is_shape: bool = False
    neighbours: tuple[str, ...] = ()
    frozen: tuple[str, int] | None = None
    ir_version: int = 0
    is_overridable: bool = False
    exceeds_protobuf: bool = False
    taken: tuple[Taken, ...] = ()

    @property
    def is_in_function(self) -> bool:
        """Whether the node is in a function of ONNX, or in a graph in one."""
        return FUNCTION_BODY in self.path

    @property
    def is_uncalled(self) -> bool:
        """Whether the node is in a function of ONNX that no node calls."""
        return isinstance(next(iter(self.path), None), str)

    @property
    def makes_sequence(self) -> bool:
        """Whether the operator is SplitToSequence."""
        return self.operator.startswith("SplitTo")

    @property
    def lacks_count(self) -> bool:
        """Whether it has neither sizes nor num_outputs, one of which Split-18 must have.

        Source: "Split" in ONNX's docs/Operators.md.
        """
        if self.sized_by != "outputs" or self.makes_sequence:
            return False
        return int(self.operator.rpartition("-")[2]) >= 18

    @property
    def dynamic_dimensions(self) -> tuple[str, ...]:
        """The names of the dynamic dimensions of the input, in order; VALUE.AXIS without a name."""
        return tuple(
            dimension_name(self.input_name, axis, size)
            for axis, size in enumerate(self.shape or ())
            if not isinstance(size, int)
        )
