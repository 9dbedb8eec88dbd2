"""Small ONNX models whose splits are those of real networks."""

import onnx
from onnx import helper

from tests.support.models import parsed

# Two gated linear units, whose halves are multiplied again.
_GLU = """(float[1,8,16] x) => (float[] y) {
    [first] a, b = Split <axis = 1, num_outputs = 2> (x)
    s = Sigmoid (b)
    [gate] h = Mul (a, s)
    [second] c, d = Split <axis = -1, num_outputs = 2> (h)
    t = Sigmoid (d)
    y = Mul (c, t)
}"""
# A step of an LSTM: the four gates are pieces of one product.
_LSTM = """(float[BATCH,64] x, float[BATCH,128] c) => (float[] h, float[] next) {
    shape = Constant <value = int64[2] {64, 512}> ()
    w = ConstantOfShape <value = float[1] {0.01}> (shape)
    sums = MatMul (x, w)
    sizes = Constant <value = int64[4] {128, 128, 128, 128}> ()
    [gates] i, o, f, g = Split <axis = 1> (sums, sizes)
    si = Sigmoid (i)
    so = Sigmoid (o)
    sf = Sigmoid (f)
    tg = Tanh (g)
    old = Mul (sf, c)
    new = Mul (si, tg)
    next = Add (old, new)
    tc = Tanh (next)
    h = Mul (so, tc)
}"""
# DecodeImage makes any rank, and the size of the image becomes two numbers.
_SUPER_RESOLUTION = """(uint8[n] image) => (float[] a, int64[] h) {
    decoded = ext.DecodeImage (image)
    pixels = Cast <to = 1> (decoded)
    ones = Constant <value = int64[3] {1, 1, 1}> ()
    [channels] a, b, c = Split <axis = -1> (pixels, ones)
    last = Constant <value = int64[1] {-1}> ()
    plane = Squeeze (a, last)
    shape = Shape (plane)
    pair = Constant <value = int64[2] {1, 1}> ()
    [cut] h, w = Split <axis = 0> (shape, pair)
}"""


def layers(count: int) -> onnx.ModelProto:
    """So many equal splits of queries, keys and values, with the names that PyTorch gives."""
    splits = "\n".join(
        f"q{number}, k{number}, v{number} = Split <axis = 2, num_outputs = 3> (x)"
        for number in range(count)
    )
    content = parsed(f"(float[1,77,2304] x) => (float[1,77,768] q0) {{ {splits} }}")
    content.graph.name = "main_graph"
    for number, node in enumerate(content.graph.node):
        node.name = f"/encoder/layer.{number}/attention/qkv/Split"
    return content


def glu() -> onnx.ModelProto:
    """Two GLUs."""
    return parsed(_GLU)


def lstm(batch: int | str) -> onnx.ModelProto:
    """An LSTM cell with 128 units, which silero-vad has with a dynamic batch."""
    return parsed(_LSTM.replace("BATCH", str(batch)))


def super_resolution() -> onnx.ModelProto:
    """The ends of a super-resolution model with its pre- and post-processing."""
    content = parsed(_SUPER_RESOLUTION)
    content.opset_import.append(helper.make_opsetid("ext", 1))
    return content
