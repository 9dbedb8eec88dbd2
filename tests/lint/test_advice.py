"""What reports advise is carried out as printed, and changes the verdict."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import TensorProto, helper

from dmlsplit.cli import main
from dmlsplit.lint.advice_texts import Advice
from dmlsplit.lint.verdict import Outcome
from tests.support.advice import (
    FUNCTION,
    OLD,
    OPTION,
    Reported,
    advised,
    custom,
    external,
    followed,
    saved,
)
from tests.support.fixtures import Capsys
from tests.support.models import one_split, one_split_to_sequence, parsed, split_without_sizes
from tests.support.networks import super_resolution
from tests.support.openvino_files import edge, layer, port, variadic

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Case(NamedTuple):
    """A model whose report has a piece of advice, and what following it takes."""

    advice: str
    content: onnx.ModelProto | str  # or an OpenVINO IR
    target: Sequence[str] = ()
    shape: tuple[int, ...] = ()  # of the value whose rank the report does not know
    cured: onnx.ModelProto | str = ""  # what an author makes of the model


# Sizes that an option gives.

DYNAMIC_AXIS = split_without_sizes((2, "n"), num_outputs=2)
NEGATIVE_AXIS = "(float[2,n] x) => (float[] a) { a, b, c = Split <axis = -1, num_outputs = 3> (x) }"
LEVEL_6_4 = ("--feature-level", "6_4")


def beside_a_value() -> onnx.ModelProto:
    """A dimension called ``a.0`` beside a value ``a``, whose axis 0 has another size."""
    content = split_without_sizes((2, "a.0"), num_outputs=2)
    del content.graph.output[0]
    content.graph.node[0].output[:] = ["p", "q"]
    content.graph.output[0].name = "p"
    content.graph.input.append(helper.make_tensor_value_info("a", FLOAT, (3,)))
    return content


AXES = {
    "a dynamic axis": Case("GIVE_AXIS_SIZE", DYNAMIC_AXIS),
    "a name with a space": Case(
        "GIVE_AXIS_SIZE", split_without_sizes((2, "n; of h"), num_outputs=2)
    ),
    "a name with a quote": Case(
        "GIVE_AXIS_SIZE", split_without_sizes((2, "o'brien"), num_outputs=2)
    ),
    "a name that shells change": Case(
        "GIVE_AXIS_SIZE", split_without_sizes(('$"a`', '$"a`'), num_outputs=2)
    ),
    "a name like that of an axis": Case("GIVE_AXIS_SIZE", beside_a_value()),
    "two dynamic sizes": Case("GIVE_AXIS_SIZE", split_without_sizes(("batch", "n"), num_outputs=2)),
    "a dynamic axis without a name": Case(
        "GIVE_AXIS_SIZE", split_without_sizes((2, None), num_outputs=2)
    ),
    "a negative axis": Case("GIVE_AXIS_SIZE", parsed(NEGATIVE_AXIS)),
    "a sequence": Case("GIVE_AXIS_SIZE", one_split_to_sequence(FLOAT, ("n", "m")), LEVEL_6_4),
    "an empty axis": Case("GIVE_SIZES", one_split(FLOAT, ("n", 0, 6), sizes=(0, 0), axis=1)),
}

# Shapes that an author declares.

SPLIT_OF_NON_ZERO = """(float[2,6] x) => (int64[] a) {
    y = NonZero (x)
    a, b = Split <axis = 1, num_outputs = 2> (y)
}"""
SPLIT_IN_BRANCH = """(float[2,6] x, bool c) => (int64[] p) {
    y = NonZero (x)
    p = If (c) <then_branch = yes () => (int64[] a) {
        a, b = Split <axis = 1, num_outputs = 2> (y)
    }, else_branch = no () => (int64[] q) { q = Identity (y) }>
}"""
SPLIT_OF_OUTPUT = SPLIT_OF_NON_ZERO.replace("a) {", "a, int64[2,k] y) {")
# A split of a value without a shape in the body of a Loop.
IN_LOOP = """(bool on0, float[1,6] x) => (float[] all) {
    last, all = Loop <body = body (int64 i, bool on, float[] state)
                      => (bool on, float[] state, float[] cut_0) {
        sizes = Constant <value = int64[2] {2, 4}> ()
        [cut] cut_0, cut_1 = Split <axis = 1> (state, sizes)
    }> ("", on0, x)
}"""
# A Reshape by a computed shape before the split, as PyTorch exports pixel shuffles.
SUPER_RESOLUTION = """(float[1, 4, h, w] x) => (float[] a) {
    two = Constant <value = int64 {2}> ()
    scale = Constant <value = float {2.0}> ()
    zero = Constant <value = int64[1] {0}> ()
    batch = Constant <value = int64[1] {1}> ()
    rest = Constant <value = int64[2] {2, -1}> ()
    shape = Shape (x)
    rows = Gather <axis = 0> (shape, two)
    real = Cast <to = 1> (rows)
    half = Div (real, scale)
    low = Floor (half)
    whole = Cast <to = 7> (low)
    one = Unsqueeze (whole, zero)
    wanted = Concat <axis = 0> (batch, one, rest)
    "/head/Reshape" = Reshape (x, wanted)
    a, b = Split <axis = 1, num_outputs = 2> ("/head/Reshape")
}"""
SPLIT_OF_UNKNOWN = "{ w = own.Mystery (x) [cut] t, b = Split <axis = 1, num_outputs = 2> (w) "
IN_A_LOOP = f"""(float[2,6] x, bool on) => (float[] all) {{
    n = Constant <value = int64 {{2}}> ()
    [loop] all = Loop <body = body (int64 i, bool on0) => (bool on1, float[] t)
        {SPLIT_OF_UNKNOWN} on1 = Identity (on0) }}> (n, on)
}}"""
IN_A_BRANCH = f"""(float[2,6] x, bool c) => (float[] p) {{
    z = Relu (x)
    p = If (c) <then_branch = yes () => (float[] q) {{ q = Relu (z) }}, else_branch = no ()
        => (float[] t) {{ t = If (c) <then_branch = inner () => (float[] t) {SPLIT_OF_UNKNOWN} }},
                                      else_branch = other () => (float[] q) {{ q = Relu (z) }}> }}>
}}"""
BESIDE_OTHERS = """(float[2,6] x) => (float[] a) {
    y = own.Mystery (x)
    z = own.Mystery (y)
    a, b = Split <axis = 1, num_outputs = 2> (y)
    c, d = Split <axis = 1, num_outputs = 2> (z)
    e, f = Split <axis = 0, num_outputs = 2> (z)
}"""
FOURIER = """(float[2,6,1] x) => (float[] a) {
    y = DFT <axis = 1> (x)
    [cut] a, b = Split <axis = 1, num_outputs = 2> (y)
}"""


def unknown_operators(graph: str) -> onnx.ModelProto:
    """A model in which ``own.Mystery`` is an operator that nobody knows."""
    content = parsed(graph)
    content.opset_import.append(helper.make_opsetid("own", 1))
    return content


SHAPES = {
    "a value in the middle": Case("DECLARE_VALUES", parsed(SPLIT_OF_NON_ZERO)),
    "a value outside of the body": Case("DECLARE_VALUES", parsed(SPLIT_IN_BRANCH)),
    "a value that is an output": Case("DECLARE_VALUES", parsed(SPLIT_OF_OUTPUT)),
    "a dynamic rank": Case(
        "DECLARE_VALUES", one_split(FLOAT, None, sizes=(2, 4), axis=1), shape=(2, 6)
    ),
    "a body": Case("DECLARE_VALUES", parsed(IN_LOOP), shape=(1, 6)),
    "a decoded image": Case("DECLARE_VALUES", super_resolution(), shape=(1, 1, 3)),
    "a computed shape": Case("DECLARE_VALUES", parsed(SUPER_RESOLUTION)),
    "an unknown operator": Case("DECLARE_VALUES", custom(), shape=(2, 6)),
    "a value in the body of a loop": Case(
        "DECLARE_VALUES", unknown_operators(IN_A_LOOP), shape=(2, 6)
    ),
    "a value in a branch in a branch": Case(
        "DECLARE_VALUES", unknown_operators(IN_A_BRANCH), shape=(2, 6)
    ),
    "values beside others": Case("DECLARE_VALUES", unknown_operators(BESIDE_OTHERS), shape=(2, 6)),
    "an operator that ONNX infers": Case("INFER_SHAPES", parsed(FOURIER)),
}

# Splits in functions.

CALL_OF_NON_ZERO = """(float[2,6] x) => (int64[] p) {
    z = NonZero (x)
    y = Transpose (z)
    [call] p, q = local.Cut (y)
}"""
AXIS_OF_FUNCTION = "(a) => (b, c) { [cut] b, c = Split <axis = 0, num_outputs = 2> (a) }"

FUNCTIONS = {
    "a value in a function": Case(
        "INLINE_FUNCTIONS", parsed(CALL_OF_NON_ZERO, FUNCTION + AXIS_OF_FUNCTION)
    ),
}

# Numbers and lengths of pieces.

STATIC_SPLIT = one_split(FLOAT, (2, 6), sizes=(2, 4), axis=1)
LENGTHS_OF_INPUT = (
    "(float[2,6] x, int64[2] s) => (float[] a) { [cut] a, b = Split <axis = 1> (x, s) }"
)
# Half of the axis and the rest, as PyTorch exports `x.split([n // 2, n - n // 2], 1)`.
COMPUTED_LENGTHS = """(float[2,n] x) => (float[] a) {
    two = Constant <value = int64[1] {2}> ()
    size = Shape <start = 1> (x)
    half = Div (size, two)
    rest = Sub (size, half)
    lengths = Concat <axis = 0> (half, rest)
    [cut] a, b = Split <axis = 1> (x, lengths)
}"""

LENGTHS = {
    "no number of outputs": Case(
        "SET_COUNT_FIRST",
        split_without_sizes((2, "n")),
        ("--ort",),
        cured=split_without_sizes((2, "n"), num_outputs=2),
    ),
    "lengths that are an input": Case(
        "STORE_LENGTHS", parsed(LENGTHS_OF_INPUT), cured=STATIC_SPLIT
    ),
    "computed lengths": Case("GIVE_SIZES_OR_STORE_LENGTHS", parsed(COMPUTED_LENGTHS)),
    "lengths computed from a value in the middle": Case(
        "STORE_LENGTHS",
        parsed(
            COMPUTED_LENGTHS.replace("Shape <start = 1> (x)", "Shape <start = 1> (y)")
            .replace("{", "{ y = NonZero (x)", 1)
            .replace("(x, lengths)", "(y, lengths)")
            .replace("float[] a", "int64[] a")
        ),
        cured=STATIC_SPLIT,
    ),
    "lengths outside": Case("KEEP_SMALL_TENSORS_INSIDE", external()),
    "too many pieces": Case(
        "MAKE_FEWER_PIECES",
        one_split_to_sequence(FLOAT, (2, 2**18)),
        LEVEL_6_4,
        cured=one_split_to_sequence(FLOAT, (2, 6)),
    ),
    "undecided lengths": Case(
        "CHECK_FIXED_SIZES",
        parsed(LENGTHS_OF_INPUT),
        OLD,
        cured=one_split(FLOAT, (1, 1, 2, 6), sizes=(2, 4), axis=3),
    ),
}

# Orders of nodes, and levels that refuse a split.

CYCLE = "(float[6] x) => (float[] b) { a, b = Split <num_outputs = 2> (y) y = Add (a, x) }"
SORTED_NODES = "(float[6] x) => (float[] b) { y = Add (x, x) a, b = Split <num_outputs = 2> (y) }"

NODES_AND_LEVELS = {
    "a cycle": Case("SORT_NODES", parsed(CYCLE), cured=parsed(SORTED_NODES)),
    "a refused type": Case(
        "REWRITE_MODEL", one_split(TensorProto.INT8, (6,), sizes=(2, 4), axis=0), OLD
    ),
    "the same in DirectML": Case(
        "DISPATCH_EQUIVALENT", one_split(INT64, (6,), sizes=(2, 4), axis=0), OLD
    ),
    "a type for newer levels": Case(
        "USE_NEWER_DIRECTML", one_split(TensorProto.DOUBLE, (6,), sizes=(2, 4), axis=0), OLD
    ),
    "undecided sizes": Case(
        "CHECK_FIXED_SIZES", one_split(INT64, ("batch", 6), sizes=(2, 4), axis=1), OLD
    ),
    "an undecided rank": Case(
        "CHECK_FIXED_SIZES", one_split(INT64, None, sizes=(2, 4), axis=1), OLD, shape=(2, 6)
    ),
}

COMPUTED_LAYER = layer(2, "ShapeOf", outputs=port(0, (2,), "I64"))
CIRCLE = [edge((0, 0), (3, 0)), edge((3, 3), (3, 1)), edge((3, 4), (3, 2))]
AXIS_EDGES = [edge((0, 0), (3, 0)), edge((1, 1), (3, 1)), edge((2, 0), (3, 2))]
AXIS_PORTS = {"inputs": port(0, (), "U8"), "outputs": port(1, (), "I64")}

OPENVINO = {
    "OpenVINO: sizes": Case("FIX_SIZES_IN_OPENVINO", variadic(dims=(-1, 2)), cured=variadic()),
    "OpenVINO: lengths": Case(
        "STORE_LENGTHS",
        variadic(lengths=COMPUTED_LAYER, outputs=((-1, 2), (4, 2))),
        cured=variadic(),
    ),
    "OpenVINO: a computed axis": Case(
        "STORE_AXIS",
        variadic(axis=layer(1, "ReadValue", **AXIS_PORTS), edges=AXIS_EDGES),
        cured=variadic(),
    ),
    "OpenVINO: a rank": Case("MERGE_DIMENSIONS", variadic(dims=(1,) * 65), cured=variadic()),
    "OpenVINO: type": Case("CONVERT_AGAIN", variadic(precision=""), cured=variadic()),
    "OpenVINO: a cycle": Case("SORT_NODES", variadic(edges=CIRCLE), cured=variadic()),
    "OpenVINO: operation set": Case(
        "CONVERT_TO_OPSET1", variadic(split_version="new"), cured=variadic()
    ),
}

CASES = AXES | SHAPES | FUNCTIONS | LENGTHS | NODES_AND_LEVELS | OPENVINO
# Followed in tests of their own.
ELSEWHERE = set(
    "CANNOT_REWRITE CANNOT_REWRITE_IN_FUNCTION CONVERT_TO_OPSET EXPORT_AGAIN EXPORT_AT_OPSET "
    "MOVE_BIN_FILE REMOVE_SIZES REQUIRE_WINDOWS_BUILD SET_IR_VERSION STORE_REAL_TENSORS "
    "USE_DIRECTML_OR_CONNECT_OUTPUTS USE_NEWER_RUNTIME USE_WINDOWS_ML".split()
)


def test_every_piece_of_advice_has_a_case_or_is_listed_as_tested_elsewhere() -> None:
    assert {case.advice for case in CASES.values()} | ELSEWHERE == set(Advice.__members__)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_advice_that_is_followed_changes_the_verdict(
    case: Case, here: Path, reported: Reported
) -> None:
    name = saved(case.content)
    verdict_before = next(v for v in reported(name, *case.target) if case.advice in advised(v))
    text = advised(verdict_before)[case.advice]
    if verdict_before.outcome is Outcome.UNKNOWN:
        text = verdict_before.fix
    text = text.replace("T.TYPE", "T.FLOAT").replace("SHAPE", str(case.shape))
    name = saved(case.cured) if case.cured else name
    name, line = followed(text, name, case.target)
    verdicts_after = reported(*name, *line)
    # Inlined, a function that is called has a split with an option of its own.
    if unknown_fixes := [
        verdict.fix for verdict in verdicts_after if verdict.outcome is Outcome.UNKNOWN
    ]:
        assert "inline" in text
        name, line = followed(unknown_fixes[0], name[0], line)
        verdicts_after = reported(*name, *line)
    assert verdict_before.outcome not in {verdict.outcome for verdict in verdicts_after}


def test_the_advised_options_of_all_splits_can_be_combined(here: Path, reported: Reported) -> None:
    """Splits may share a dimension, and one shape may follow from another one."""
    shared = parsed("""(float[n,6] x, float[6,n] y) => (float[] a, float[] d, float[] g) {
        a, b = Split <axis = 0, num_outputs = 2> (x)
        d, e, f = Split <axis = 1, num_outputs = 3> (y)
        z = Relu (x)
        g, h = Split <axis = 1, num_outputs = 2> (z)
    }""")
    unnamed = parsed("""(float[?,6] x) => (float[] a, float[] c) {
        a, b = Split <axis = 0, num_outputs = 2> (x)
        y = Relu (x)
        c, d, e = Split <axis = 0, num_outputs = 3> (y)
    }""")
    for content in shared, unnamed:
        name = saved(content)
        fixes = " ".join(verdict.fix for verdict in reported(name))
        options = set(OPTION.findall(fixes))
        verdicts_after = reported(name, *shlex.split(" ".join(options)))
        assert {verdict.outcome for verdict in verdicts_after} <= {Outcome.RUNS, Outcome.FOLDED}


def test_an_option_that_disagrees_with_the_model_is_refused(here: Path, capsys: Capsys) -> None:
    options = ("--dim", "x.1=7", "--dim", "x.0=2")
    assert main(["validate", saved(STATIC_SPLIT), *options]) == 2
    assert "x.1 is 7; the model fixes it to 6" in capsys.readouterr().err


def test_weights_linked_from_outside_the_folder_get_the_advice_to_move_them(
    here: Path, reported: Reported
) -> None:
    saved(variadic())
    Path("folder").mkdir()
    link = Path("folder", "model.bin")
    Path("model.xml").rename("folder/model.xml")
    link.symlink_to("../model.bin")
    (verdict_before,) = reported("folder/model.xml")
    assert list(advised(verdict_before)) == ["MOVE_BIN_FILE"]
    link.unlink()
    Path("model.bin").rename(link)
    assert reported("folder/model.xml")[0].outcome is Outcome.RUNS


def test_lengths_computed_in_a_function_have_no_sizes_that_an_option_could_give(
    here: Path, reported: Reported
) -> None:
    body = "(a) => (l) { y = NonZero (a) l = Shape <start = 1> (y) }"
    inside = "(a) => (b) { l = Shape (a) [cut] b = Split <axis = 0> (a, l) }"
    calls = "(float[n] x) => (float[] p) { z = local.Cut (x) [p] p = Split <axis = 0> (x, z) }"
    whole = "(float[n] x) => (float[] p) { p = local.Cut (x) }"
    for graph, function in (calls, body), (whole, inside):
        (verdict,) = reported(saved(parsed(graph, FUNCTION + function)))
        assert verdict.fix == Advice.STORE_LENGTHS


def test_the_advice_to_declare_a_type_guesses_none(here: Path, reported: Reported) -> None:
    (verdict,) = reported(saved(custom()))
    assert "(replace TYPE and SHAPE): python" in verdict.fix
    assert "'y', T.TYPE, SHAPE)" in verdict.fix
    (verdict,) = reported(saved(parsed(SPLIT_OF_NON_ZERO)))
    assert "for example: python" in verdict.fix
    assert "'y', T.INT64, [2, 2])" in verdict.fix
