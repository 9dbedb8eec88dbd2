"""Shapes in the bodies of Loop and Scan, and after loops, sequences and functions."""

from typing import Any

import pytest
from onnx import parser

from tests.support.onnx_graphs import Scanned

CUT = "k, l = Split <axis = 0, num_outputs = 2> (v)"
LOOP = """s, y = Loop <body = b (int64 i, bool go, float[] v) => (bool on, float[] w, float[] o) {
    on = Identity (go) w = Relu (v) o = Neg (x)
}> (n, c, x) """
SCAN = """s, y = Scan <num_scan_inputs = 1, AXES
    body = b (float[] v, float[] t) => (float[] w, float[] o) {
        k, l = Split <axis = 0, num_outputs = 2> (t) w = Relu (v) o = Neg (k)
    }> (h, x) """
PIECES = "z = Constant <value_int = 0> () s = SplitToSequence <axis = 1KEEP> (x) "
PAIR = "z = Constant <value_int = 0> () s = SequenceConstruct (x, x) "
JOINED = "y = ConcatFromSequence <axis = 0, new_axis = NEW> (s) "
UNKNOWN = None
CASES = {
    "results of a loop": (LOOP, ("?", 4, 6)),
    "a state of a loop": (LOOP + "y0 = Neg (s) ", UNKNOWN, "y0"),
    "a state in a loop": (LOOP.replace("w = Relu (v)", "w = Relu (v) " + CUT), UNKNOWN, "v"),
    "results of a scan": (SCAN.replace("AXES", ""), (4, 3)),
    "a state of a scan": (SCAN.replace("AXES", ""), (3,), "s"),
    "in a scan": (SCAN.replace("AXES", ""), (6,), "t"),
    "axes of a scan": (
        SCAN.replace("AXES", "scan_input_axes = [-1], scan_output_axes = [1],"),
        (2, 6),
    ),
    "a scan without inputs": (SCAN.replace("inputs = 1, AXES", "inputs = 9,"), UNKNOWN),
    "a piece": (PIECES.replace("KEEP", "") + "y = SequenceAt (s, z)", (4, 1)),
    "a squeezed piece": (PIECES.replace("KEEP", ", keepdims = 0") + "y = SequenceAt (s, z)", (4,)),
    "of a pair": (PAIR + "t = SequenceInsert (s, x) y = SequenceAt (t, z)", (4, 6)),
    "joined": (PAIR + JOINED.replace("NEW", "0"), ("?", 6)),
    "stacked": (PAIR + JOINED.replace("NEW", "1"), ("?", 4, 6)),
    "of two sizes": (PAIR.replace("x, x", "x, h2") + "y = SequenceAt (s, z)", (4, "?")),
    "a length": (
        PAIR + "n2 = SequenceLength (s) a = Constant <value_ints = [0]> () y = Unsqueeze (n2, a)",
        (1,),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_shape_after_a_loop_or_sequence_is_known(scanned: Scanned, case: Any) -> None:
    nodes, shape, value = (*case, "y")[:3]
    inputs = "int64 n, bool c, float[4,6] x, float[3] h, float[4,2] h2"
    cut = f"[last] p = Split <num_outputs = 1> ({value})" if value not in ("t", "v") else ""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => () {{ {nodes} {cut} }}'
    sites = scanned(parser.parse_model(text))
    assert [site.shape for site in sites if site.value == value] == [shape]
