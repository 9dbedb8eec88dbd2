"""The standard ONNX nodes that replace a split.

A split that is refused for its rank, an 8-bit type, an empty piece or a sequence output becomes
as many of ``Unsqueeze, Cast, Split, Cast, Squeeze`` as it needs; above the greatest rank, Reshape
replaces Unsqueeze and Squeeze. All of them serve every size of a dynamic dimension. Empty pieces
become constants. ``SequenceConstruct`` makes a sequence, unless nodes only take pieces out of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from dmlsplit.errors import UnsupportedError
from dmlsplit.lint.fix.split_forms import Merging, Obstacle, SplitForm, form_of, is_static
from dmlsplit.lint.verdict import Verdict
from dmlsplit.models.site import Known, Size, SplitSite, State, Unknown

NewName = Callable[[str], str]
# The type in which values of 8 bits are split: FLOAT32 holds them all, and every runtime splits it.
# Below feature level 3_0, DirectML's Cast has no integers wider than 16 bits. Source:
# https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_cast_operator_desc
_WIDE_TYPE = int(onnx.TensorProto.FLOAT)
# The opset since which Reshape has the attribute allowzero.
_ALLOWZERO_SINCE = 14


def name_maker(model: bytes) -> NewName:
    """A function that makes a name that a serialised model lacks, ending in its argument."""
    prefix = "dmlsplit_"
    while prefix.encode() in model:
        prefix += "_"
    numbers = count(1)
    return lambda ending: f"{prefix}{next(numbers)}_{ending}"


def replacement_nodes(
    node: NodeProto, verdict: Verdict, new_name: NewName, taken: Mapping[int, str] | None = None
) -> list[NodeProto]:
    """The nodes that replace a refused split, with a Split of its name; else UnsupportedError.

    If a sequence is only there for pieces to be taken out of it, `taken` has the names of these
    pieces by their positions, and the nodes make them instead of the sequence.
    """
    form = form_of(verdict)
    if isinstance(form, Obstacle):
        raise UnsupportedError(str(form))
    if form.lacks_only_count:
        return [_with_count(node)]
    sizes = [None] * len(node.output) if form.is_divided else _piece_sizes(verdict.site.state)
    makes_sequence = node.op_type == "SplitToSequence" and not taken
    if taken:
        names = [taken.get(position, "") for position in range(len(sizes))]
    else:
        names = [new_name("piece") for _ in sizes] if makes_sequence else list(node.output)
    nodes = _Nodes(node, verdict.site, form, new_name)
    nodes.replace_split(list(zip(names, sizes, strict=True)))
    if makes_sequence:
        nodes.add("SequenceConstruct", names, node.output[0])
    return nodes


def _with_count(node: NodeProto) -> NodeProto:
    """A copy of a Split with the attribute that it lacks."""
    counted = NodeProto()
    counted.CopyFrom(node)
    counted.attribute.append(helper.make_attribute("num_outputs", len(node.output)))
    return counted


def _piece_sizes(state: State) -> Sequence[Size]:
    """The sizes of the pieces of a split that has a form and is not divided."""
    assert isinstance(state, Known | Unknown)  # otherwise, there is no form
    assert state.pieces is not None
    return state.pieces


class _Nodes(list[NodeProto]):
    """The nodes of a replacement, in execution order.

    A method adds nodes; if it returns a string, that is the name of their output.
    """

    def __init__(
        self, node: NodeProto, site: SplitSite, form: SplitForm, new_name: NewName
    ) -> None:
        self.node = node
        self.form = form
        self.new_name = new_name
        self.shape = site.shape or ()
        self.axis = site.axis or 0
        self.opset = site.opset
        self.data_type = onnx.TensorProto.DataType.Value(site.element_type)
        self.drops_axis = not site.keeps_axis
        # The axes that a Squeeze removes from each piece.
        dropped = [form.axis] if self.drops_axis else []
        self.squeezed = [] if form.merging else [*form.added_axes, *dropped]

    def add(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node with one output; a name is made for it if none is given."""
        output = output or self.new_name(operator.lower())
        self.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: np.ndarray, output: str) -> str:
        """Add a Constant."""
        return self.add("Constant", [], output, value=numpy_helper.from_array(value, output))

    def shape_of(self, sizes: Iterable[Size]) -> str:
        """A constant shape; a dynamic size follows from the others."""
        dimensions = [size if isinstance(size, int) else -1 for size in sizes]
        return self.constant(np.array(dimensions, np.int64), self.new_name("shape"))

    def with_axes(self, operator: str, value: str, axes: Sequence[int], output: str) -> str:
        """A Squeeze or Unsqueeze."""
        if self.opset < 13:
            return self.add(operator, [value], output, axes=axes)
        name = self.constant(np.array(axes, np.int64), self.new_name("axes"))
        return self.add(operator, [value, name], output)

    def piece_shape(self, size: int) -> tuple[Size, ...]:
        """The shape of a piece of this size along the axis."""
        axis_size = () if self.drops_axis else (size,)
        return *self.shape[: self.axis], *axis_size, *self.shape[self.axis + 1 :]

    @cached_property
    def computed_ends(self) -> list[list[str]]:
        """The sizes before and after the axis, computed from the shape of the input."""
        whole = self.add("Shape", [self.node.input[0]])
        ends = range(self.axis), range(self.axis + 1, len(self.shape))
        return [
            [self.add("Gather", [whole, self.shape_of(end)], axis=0)] if end else [] for end in ends
        ]

    def computed_shape(self, size: int) -> str:
        """The shape of a piece, computed from that of the input."""
        first, last = self.computed_ends
        axis_size = [] if self.drops_axis else [self.shape_of([size])]
        return self.add("Concat", [*first, *axis_size, *last], axis=0)

    def merged_shape(self, merging: Merging) -> str:
        """The shape of the input with merged dimensions, computed from that of the input."""
        leading_size, _, size, _ = merging.groups
        before, after = (self.add("ReduceProd", end) for end in self.computed_ends)
        parts = [self.shape_of([leading_size]), before, self.shape_of([size]), after]
        return self.add("Concat", parts, axis=0)

    def reshape(
        self, value: str, sizes: Sequence[Size], compute: Callable[[], str], output: str
    ) -> str:
        """A Reshape. Its shape is a constant if one size at most is dynamic, else computed."""
        if sum(not isinstance(size, int) for size in sizes) < 2:
            return self.add("Reshape", [value, self.shape_of(sizes)], output)
        # By default, a size of 0 stands for that of the input.
        exact = {"allowzero": 1} if self.opset >= _ALLOWZERO_SINCE else {}
        return self.add("Reshape", [value, compute()], output, **exact)

    def add_empty_piece(self, output: str) -> None:
        """Add a constant of size 0 along the axis, or nodes that make it at dynamic sizes."""
        sizes = self.piece_shape(0)
        dtype = helper.tensor_dtype_to_np_dtype(self.data_type)
        if is_static(sizes):
            self.constant(np.empty(sizes, dtype), output)
            return
        zero = numpy_helper.from_array(np.zeros(1, dtype))
        self.add("ConstantOfShape", [self.computed_shape(0)], output, value=zero)

    def split(self, value: str, lengths: Mapping[str, Size]) -> None:
        """Add the Split itself, into pieces of these names and sizes."""
        inputs = [value]
        sizes = list(lengths.values())
        attributes: dict[str, Any] = {"axis": self.form.axis}
        if self.form.is_divided:
            for attribute in self.node.attribute:
                if attribute.name == "num_outputs":
                    attributes[attribute.name] = attribute.i
        elif self.opset < 13:
            attributes["split"] = sizes
        else:
            inputs.append(self.constant(np.array(sizes, np.int64), self.new_name("sizes")))
        self.append(helper.make_node("Split", inputs, list(lengths), self.node.name, **attributes))

    def replace_split(self, pieces: Sequence[tuple[str, Size]]) -> None:
        """Split the value into pieces, each with its name and its size, if that is not dynamic."""
        is_direct = not (self.form.is_cast or self.form.merging or self.squeezed)
        value = self.prepare_value()
        # An unused piece has no name, but Split still has to output it.
        parts = [p if is_direct and p else self.new_name("part") for p, _ in pieces]
        lengths = {part: size for part, (_, size) in zip(parts, pieces, strict=True) if size != 0}
        self.split(value, lengths)
        self[-1].doc_string = self.node.doc_string
        self[-1].metadata_props.MergeFrom(self.node.metadata_props)
        if hasattr(self.node, "device_configurations"):  # since onnx 1.18
            self[-1].device_configurations.MergeFrom(self.node.device_configurations)
        for part, (piece, size) in zip(parts, pieces, strict=True):
            if piece and size == 0:
                self.add_empty_piece(piece)
            elif piece and not is_direct:
                self.restore(part, piece, size)

    def prepare_value(self) -> str:
        """The value that Split takes."""
        form = self.form
        value: str = self.node.input[0]
        if merging := form.merging:
            sizes = [*[0] * merging.kept, *merging.groups]
            value = self.reshape(
                value, sizes, lambda: self.merged_shape(merging), self.new_name("rows")
            )
        elif form.added_axes:
            value = self.with_axes("Unsqueeze", value, form.added_axes, self.new_name("padded"))
        if form.is_cast:
            value = self.add("Cast", [value], self.new_name("wide"), to=_WIDE_TYPE)
        return value

    def restore(self, part: str, piece: str, size: Size) -> None:
        """Give a part the type and the shape of its piece."""
        if self.form.is_cast:
            is_last = not (self.form.merging or self.squeezed)
            output = piece if is_last else self.new_name("narrow")
            part = self.add("Cast", [part], output, to=self.data_type)
        if self.form.merging:
            assert isinstance(size, int)  # an axis that is divided is not merged
            kept = self.form.merging.kept
            sizes = [*[0] * kept, *self.piece_shape(size)[kept:]]
            self.reshape(part, sizes, lambda: self.computed_shape(size), piece)
        elif self.squeezed:
            self.with_axes("Squeeze", part, self.squeezed, piece)
