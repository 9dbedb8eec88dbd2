"""Nodes that take single pieces out of a sequence, and other uses of it."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dmlsplit.models.site import Taken
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


BRANCHES = "then_branch = t () => (float[] a) { a = SequenceAt (s, one) }, "
BRANCHES += "else_branch = e () => (float[] b) { b = SequenceAt (s, USED) }"


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ("y = SequenceAt (s, one)", [Taken((3,), 1)]),
        ("i = Identity (one) y = SequenceAt (s, i)", [Taken((4,), 1)]),
        ("i = Neg (one) y = SequenceAt (s, i) z = SequenceAt (s, one)",
         [Taken((4,), -1), Taken((5,), 1)]),
        (f"y = If (flag) <{BRANCHES.replace('USED', 'one')}>",
         [Taken((3, "then_branch", 0, 0), 1), Taken((3, "else_branch", 0, 0), 1)]),
        # One other use, and the sequence itself is needed.
        (f"y = If (flag) <{BRANCHES.replace('USED', 'given')}>", []),
        ("y = SequenceAt (s, given)", []),
        ("y = SequenceAt (s, one) n = SequenceLength (s)", []),
        ("y = SequenceAt (s, one) t = Identity (s)", []),
        ("y = Identity (x)", []),
    ],
)  # fmt: skip
def test_pieces_are_taken_if_the_sequence_has_no_other_use(
    uses: str, expected: list[Taken], scanned: Scanned
) -> None:
    (site,) = scanned(sequence(uses))
    assert list(site.taken) == expected


def test_a_sequence_that_a_graph_outputs_is_needed(scanned: Scanned) -> None:
    (site,) = scanned(sequence("y = SequenceAt (s, one)", "float[] y, seq(float[]) s"))
    assert not site.taken


def test_a_position_is_not_constant_if_a_caller_may_override_it(scanned: Scanned) -> None:
    content = sequence("y = SequenceAt (s, at)")
    content.graph.initializer.append(numpy_helper.from_array(np.array(2), "at"))
    assert scanned(content)[0].taken == (Taken((3,), 2),)
    content.graph.input.append(onnx.helper.make_tensor_value_info("at", onnx.TensorProto.INT64, []))
    (site,) = scanned(content)
    assert (site.taken, site.is_overridable) == ((), False)
