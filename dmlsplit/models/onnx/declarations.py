"""What a graph declares about its values, and where that contradicts what its nodes make.

ONNX Runtime 1.32 does not load a model that declares another type than a node makes, that gives two
values one name, or a node two attributes of one name or one without a type, or an input a default
of another type or shape. Where the shape that a node makes differs, it warns, and takes only the
sizes that agree.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dmlsplit.messages import Note
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.operators import ElementType
from dmlsplit.models.onnx.protobuf import Graph, Node, Shape, ValueInfo, shown_name
from dmlsplit.models.onnx.values import Value, contradicts


@dataclass(slots=True)
class Declarations:
    """The declarations of a graph or function, and whether one of them has been wrong.

    The others are not believed any more: the file has them for other sizes, or onnx inferred them
    from a wrong one.
    """

    # What is declared about each value, with the sizes that the user gives.
    by_name: Mapping[str, Value]
    are_stale: bool = False


def declared_values(entries: Iterable[ValueInfo], dimensions: FixedSizes) -> dict[str, Value]:
    """The declarations by name, the last one of each, with the sizes that the user gives."""
    return {
        entry.name: Value(entry.data_type, entry.shape and tuple(map(dimensions.size, entry.shape)))
        for entry in entries
    }


def shape_remark(name: str, declared: Shape | None, shape: Shape | None, maker: str) -> Note:
    """The warning about a declared shape that contradicts what a node makes."""
    return Note(
        f"the model declares {shown_name(name)} as {_shown_shape(declared)}, but {maker} makes "
        f"{_shown_shape(shape)}; ONNX Runtime warns, and dmlsplit goes by the node",
        "remove the declaration, or correct it",
    )


def _shown_shape(shape: Shape | None) -> str:
    """A shape for a message."""
    sizes = ("?" if size is None else shown_name(str(size)) for size in shape or ())
    return f"[{','.join(sizes)}]"


def input_faults(graph: Graph) -> Iterator[str]:
    """The faults of a graph's inputs: names that occur twice, and defaults that do not fit."""
    entries: dict[str, ValueInfo] = {}
    for entry in graph.input:
        if entry.name in entries:
            yield f"two inputs are named {shown_name(entry.name)}"
        entries[entry.name] = entry
    for tensor in graph.initializer:
        entry = entries.get(tensor.name, ValueInfo())
        declared = default = ""
        if entry.data_type not in (0, tensor.data_type):
            declared, default = map(_type_name, (entry.data_type, tensor.data_type))
        elif contradicts(entry.shape, tensor.shape):
            declared, default = map(_shown_shape, (entry.shape, tensor.shape))
        if declared:
            text = f"the model declares its input {shown_name(tensor.name)} as {declared}"
            yield f"{text}, but the input's default is {default}"


def value_faults(graph: Graph, names: Container[str]) -> Iterator[str]:
    """The faults in the declarations of a graph that has values of these names."""
    for entry in graph.output:
        if entry.name not in names:
            yield f"nothing in its graph makes the output {shown_name(entry.name)}"
    entries = (*graph.input, *graph.output, *graph.value_info)
    # The first declaration of a value counts.
    tensors = {entry.name: entry for entry in reversed(entries) if entry.type.tensor_type}
    for entry in tensors.values():
        if not entry.data_type and entry.name in names:
            yield f"the model declares {shown_name(entry.name)} as a tensor without a type"


def output_faults(
    node: Node, name: str, value: Value, declared: Value | None, maker: str, *, is_taken: bool
) -> Iterator[str]:
    """The faults of an output: a name that is taken, and a type that is declared as another."""
    if is_taken:
        yield f"{maker} gives an output the name {shown_name(name)}, which another value has"
    expected = declared.data_type if declared else 0
    operator = "" if node.domain else node.op_type
    # ONNX Runtime takes the type of a constant from the constant.
    if not expected or not value.data_type or operator == "Constant":
        return
    if operator == "SplitToSequence" or expected != value.data_type:
        made = "a sequence" if operator == "SplitToSequence" else _type_name(value.data_type)
        text = f"the model declares {shown_name(name)} as {_type_name(expected)}"
        yield f"{text}, but {maker} makes {made}"


def attribute_faults(node: Node, *, in_function: bool) -> Iterator[str]:
    """The faults of a node's attributes: names that occur twice, and missing types.

    Each is a sentence without its subject, the node: few nodes of a model need a description.
    """
    names = [attribute.name for attribute in node.attribute]
    # Of those in a function, ONNX Runtime takes the last one.
    if len(set(names)) < len(names) and not in_function:
        twice = next(name for name in names if names.count(name) > 1)
        yield f"sets the attribute {shown_name(twice)} twice"
    for attribute in node.attribute:
        if not attribute.type:
            yield f"sets the attribute {shown_name(attribute.name)} without its type"


def _type_name(data_type: int) -> str:
    """A type for a message."""
    return ElementType(data_type).name
