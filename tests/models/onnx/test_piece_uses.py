"""Nodes that take single pieces out of a sequence, and other uses of it."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dmlsplit.models.site import NodePath
from tests.support.models import parsed
from tests.support.onnx_graphs import Scanned


def sequence(uses: str, outputs: str = "float[] y") -> onnx.ModelProto:
    """A SplitToSequence, node 2 of the graph, before these nodes."""
    return parsed(f"""(float[n,6] x, bool flag, int64 given) => ({outputs}) {{
        size = Constant <value = int64 {{2}}> ()
        one = Constant <value = int64 {{1}}> ()
        s = SplitToSequence <axis = 1> (x, size)
        {uses}
    }}""")


def taken(model: onnx.ModelProto, scanned: Scanned) -> list[tuple[NodePath, int]]:
    """The nodes that take a piece of the only sequence, and the position of the piece."""
    (site,) = scanned(model)
    return [(piece.path, piece.position) for piece in site.taken]


AFTER_THE_SEQUENCE = 3  # the number of the first of `uses` in the graph


def test_a_sequence_at_takes_the_piece_at_a_constant_position(scanned: Scanned) -> None:
    model = sequence("y = SequenceAt (s, one)")
    assert taken(model, scanned) == [((AFTER_THE_SEQUENCE,), 1)]


def test_a_position_may_be_calculated_from_constants(scanned: Scanned) -> None:
    model = sequence("i = Neg (one) y = SequenceAt (s, i)")
    assert taken(model, scanned) == [((AFTER_THE_SEQUENCE + 1,), -1)]


def test_several_nodes_take_pieces(scanned: Scanned) -> None:
    model = sequence("y = SequenceAt (s, one) z = SequenceAt (s, one)")
    first, second = (AFTER_THE_SEQUENCE,), (AFTER_THE_SEQUENCE + 1,)
    assert taken(model, scanned) == [(first, 1), (second, 1)]


def test_nodes_in_branches_take_pieces(scanned: Scanned) -> None:
    model = sequence("""y = If (flag) <
        then_branch = t () => (float[] a) { a = SequenceAt (s, one) },
        else_branch = e () => (float[] b) { b = SequenceAt (s, one) }
    >""")
    assert taken(model, scanned) == [
        ((AFTER_THE_SEQUENCE, "then_branch", 0, 0), 1),
        ((AFTER_THE_SEQUENCE, "else_branch", 0, 0), 1),
    ]


@pytest.mark.parametrize(
    "uses",
    [
        "y = SequenceAt (s, given)",
        """y = If (flag) <
            then_branch = t () => (float[] a) { a = SequenceAt (s, one) },
            else_branch = e () => (float[] b) { b = SequenceAt (s, given) }
        >""",
        "y = SequenceAt (s, one) n = SequenceLength (s)",
        "y = SequenceAt (s, one) t = Identity (s)",
        "y = Identity (x)",
    ],
    ids=["position of an input", "in one branch", "its length", "the whole", "none"],
)
def test_no_piece_is_taken_if_the_sequence_has_another_use_or_none(
    uses: str, scanned: Scanned
) -> None:
    assert taken(sequence(uses), scanned) == []


def test_a_sequence_that_a_graph_outputs_is_needed(scanned: Scanned) -> None:
    model = sequence("y = SequenceAt (s, one)", outputs="float[] y, seq(float[]) s")
    assert taken(model, scanned) == []


def test_a_position_is_not_constant_if_a_caller_may_override_it(scanned: Scanned) -> None:
    content = sequence("y = SequenceAt (s, at)")
    content.graph.initializer.append(numpy_helper.from_array(np.array(2), "at"))
    assert taken(content, scanned) == [((AFTER_THE_SEQUENCE,), 2)]
    content.graph.input.append(onnx.helper.make_tensor_value_info("at", onnx.TensorProto.INT64, []))
    (site,) = scanned(content)
    assert (site.taken, site.is_overridable) == ((), False)
