"""Settings of splits on which ONNX and ONNX Runtime differ: the warnings about them.

A scan has no target, so they hold whatever the target is. What a target takes is in
lint/runtimes.yaml, with which a test compares `EMPTY_LAST_SINCE`. The source of a `ProviderRemark`
is that of its rule, in lint/rules.yaml; the rest was seen with ONNX Runtime 1.15 to 1.32.
"""

from collections.abc import Iterator

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.models.onnx.arguments import Arguments
from dmlsplit.models.onnx.protobuf import Node
from dmlsplit.models.site import ProviderRemark, Size

# The first ONNX Runtime whose kernel for the CPU takes an empty last piece of num_outputs.
EMPTY_LAST_SINCE = "1.32"
DISPUTED_AXIS = (
    "keepdims is 0 with a scalar split: ONNX keeps the axis nevertheless, ONNX Runtime drops it"
)


def node_warnings(node: Node, arguments: Arguments) -> Iterator[str]:
    """The warnings about a node, whatever its input is."""
    if arguments.operator.makes_sequence:
        missing = "ONNX Runtime's DirectML provider has no SplitToSequence"
        yield ProviderRemark(missing, "ORT-SEQUENCE")
        if isinstance(arguments.split, int) and arguments.keeps_axis is None:
            failure = "ONNX Runtime fails at the node if a piece has another size than 1"
            yield ProviderRemark(f"{DISPUTED_AXIS}; {failure}", "ORT-KEEPDIMS", "set keepdims to 1")
        return
    if "" in node.output:
        crash = f"output {node.output.index('')} has no name; on the CPU, ONNX Runtime crashes"
        yield ProviderRemark(crash, "ORT-OUTPUT-NAME", "name every output")
    if "" in node.input[1:2] and arguments.num_outputs is not None:
        yield ProviderRemark(
            "split is an input without a name next to num_outputs, which ONNX Runtime before 1.32 "
            "refuses on the CPU",
            "ORT-INPUT-NAME",
            "remove the input",
        )


def axis_warnings(arguments: Arguments, axis_size: Size) -> Iterator[str]:
    """The warnings about a node, given the size of its axis."""
    count = arguments.num_outputs
    if not isinstance(axis_size, int) and count is not None and count > 2:
        yield (
            f"num_outputs={count} on a dynamic axis works only for sizes d with "
            f"ceil(d / {count}) * {count - 1} <= d; if the two are equal, the last piece is empty, "
            f"which ONNX Runtime before {EMPTY_LAST_SINCE} refuses"
        )


def piece_warnings(
    arguments: Arguments, sizes: tuple[int, ...], descriptor: SplitOperatorDesc | None
) -> Iterator[str]:
    """The warnings about a split, given the sizes of its pieces."""
    if arguments.operator.makes_sequence:
        if arguments.split is not None and not arguments.keepdims:
            text = (
                "keepdims=0 is ignored because split is given, as ONNX specifies; ONNX Runtime "
                "squeezes pieces of chunk size 1 and refuses other chunk sizes"
            )
            yield ProviderRemark(text, "ORT-KEEPDIMS")
    elif descriptor is not None and 0 in sizes:
        text = (
            f"piece {sizes.index(0)} is empty; ONNX Runtime's DirectML provider appears to skip "
            "the whole node and to leave the other pieces unwritten"
        )
        yield ProviderRemark(text, "ORT-EMPTY-PIECE")
