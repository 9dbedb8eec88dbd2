"""What ONNX Runtime computes or drops when it loads a model, held to ONNX Runtime itself."""

from pathlib import Path

import onnx
import pytest

from dmlsplit.frontends.onnx import FixedSizes, scan
from tests.support.models import parsed

INTS_AND_SIZES = (
    "w = Constant <value = int64[4] {1, 2, 3, 4}> () k = Constant <value = int64[2] {2, 2}> ()"
)
USED = "c = Add (a, b) y = Add (x, c)"
FLOATS = "w = Constant <value = float[4] {1, 2, 3, 4}> ()"
HALVES = "a, b = Split <axis = 0, num_outputs = 2>"
# The inputs and initializers, and the nodes.
FOLDED = {
    "a constant": ("int64[2] x", f"{INTS_AND_SIZES} a, b = Split <axis = 0> (w, k) {USED}"),
    "an initializer": (
        "int64[2] x) => (int64[2] y) <int64[4] w = {1, 2, 3, 4}, int64[2] k = {2, 2}>",
        f"a, b = Split <axis = 0> (w, k) {USED}",
    ),
    "what a constant becomes": (
        "float[2] x",
        f"{FLOATS} r = Relu (w) e = Erf (r) {HALVES} (e) {USED}",
    ),
    "a known shape": (
        "float[6,2] x) => (float[2,6] y)",
        f"s = Shape (x) {HALVES} (s) c = Concat <axis = 0> (b, a) y = Reshape (x, c)",
    ),
    "ConstantOfShape": (
        "float[2] x",
        f"n = Constant <value = int64[1] {{4}}> () r = ConstantOfShape (n) {HALVES} (r) {USED}",
    ),
    "unused pieces": ("float[2] x", f"{FLOATS} {HALVES} (w) y = Relu (x)"),
    "in a branch": (
        "int64[2] x, bool c",
        f"""{INTS_AND_SIZES} y = If (c) <
            then_branch = t () => (int64[2] d) {{ a, b = Split <axis = 0> (w, k) d = Add (a, x) }},
            else_branch = e () => (int64[2] f) {{ f = Identity (x) }}>""",
    ),
}
KEPT = {
    "a constant that a caller may override": (
        "int64[2] x, int64[4] w = {1, 2, 3, 4}) => (int64[2] y)",
        f"k = Constant <value = int64[2] {{2, 2}}> () a, b = Split <axis = 0> (w, k) {USED}",
    ),
    "what follows from such a constant": (
        "int64[2] x, int64[4] w = {1, 2, 3, 4}) => (int64[2] y)",
        f"n = Neg (w) {HALVES} (n) {USED}",
    ),
    "sizes that a caller may override": (
        "int64[2] x, int64[2] k = {2, 2}) => (int64[2] y)",
        f"w = Constant <value = int64[4] {{1, 2, 3, 4}}> () a, b = Split <axis = 0> (w, k) {USED}",
    ),
    "a shape of which one size is dynamic": (
        "float[n,2,3] x) => (float[p,q,r] y)",
        f"""s = Shape <start = 1> (x) {HALVES} (s) m = Constant <value = int64[1] {{-1}}> ()
            c = Concat <axis = 0> (m, b, a) y = Reshape (x, c)""",
    ),
    "the number of elements": (
        "float[6,2] x) => (int64[1] y)",
        f"""n = Size (x) z = Constant <value = int64[1] {{0}}> () u = Unsqueeze (n, z)
            v = Concat <axis = 0> (u, u) {HALVES} (v) y = Add (a, b)""",
    ),
    "random numbers": ("float[2] x", f"r = RandomNormal <shape = [4]> () {HALVES} (r) {USED}"),
    "random numbers of a shape": (
        "float[2] x",
        f"{FLOATS} r = RandomNormalLike (w) {HALVES} (r) {USED}",
    ),
    "a quantized constant": (
        "float[2] x",
        f"""w = Constant <value = uint8[4] {{1, 2, 3, 4}}> ()
            s = Constant <value = float {{0.5}}> () r = DequantizeLinear (w, s)
            {HALVES} (r) {USED}""",
    ),
    "unused pieces of an input": ("float[4] x) => (float[4] y)", f"{HALVES} (x) y = Relu (x)"),
    "a sequence": (
        "float[2] x",
        f"""{FLOATS} n = Constant <value = int64 {{2}}> () r = SplitToSequence (w, n)
            z = Constant <value = int64 {{0}}> () a = SequenceAt (r, z) y = Add (x, a)""",
    ),
}


def model_of(inputs: str, nodes: str) -> onnx.ModelProto:
    if "=>" not in inputs:
        kind = inputs.split("[", 1)[0]
        inputs += f") => ({kind}[2] y)"
    return parsed(f"({inputs} {{ {nodes} }}")


def operators(graph: onnx.GraphProto) -> list[str]:
    """The operators of a graph and of the bodies in it."""
    operator_types = []
    for graph_node in graph.node:
        operator_types.append(graph_node.op_type)
        for attribute in graph_node.attribute:
            operator_types += operators(attribute.g)
    return operator_types


@pytest.mark.parametrize("name", [*FOLDED, *KEPT])
def test_a_split_is_folded_exactly_if_onnx_runtime_folds_it(tmp_path: Path, name: str) -> None:
    import onnxruntime

    path, optimized = tmp_path / "model.onnx", tmp_path / "optimized.onnx"
    onnx.save(model_of(*(FOLDED | KEPT)[name]), path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(optimized)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    splits_left = [
        operator for operator in operators(onnx.load(optimized).graph) if "Split" in operator
    ]
    (site,) = scan(path)
    assert (site.is_folded, splits_left == []) == (name in FOLDED,) * 2


def test_a_split_of_a_constant_in_a_function_is_folded(tmp_path: Path) -> None:
    function = """<domain: "local", opset_import: ["" : 18]>
        halves (v) => (p, q) { p, q = Split <axis = 0, num_outputs = 2> (v) }"""
    graph = f"(float[2] x) => (float[2] y) {{ {FLOATS} a, b = local.halves (w) {USED} }}"
    onnx.save(parsed(graph, function), tmp_path / "model.onnx")
    assert [site.is_folded for site in scan(tmp_path / "model.onnx")] == [True]


BRANCHES = """y = If (c) <
    then_branch = t () => (float[p,q] d) { [yes] d, e = Split <num_outputs = 2> (x) },
    else_branch = e () => (float[p,q] f) { [no] f, g = Split <num_outputs = 2> (x) }>"""
LOOP = """y = Loop (n, c, x) <body = b (int64 i, bool ci, float[4,2] s) => (bool co, float[4,2] d) {
    co = Identity (ci) [in] p, q = Split <num_outputs = 2> (s) d = Concat <axis = 0> (q, p) }>"""
ONE, TRUE = "n = Constant <value = int64 {1}> ()", "c = Constant <value = bool {1}> ()"
# The nodes, and the names of the splits that never run.
DEAD = [
    (f"{TRUE} {BRANCHES}", ["no"]),
    (f"c = Constant <value = bool {{0}}> () {BRANCHES}", ["yes"]),
    # Exporters compare the rank, or a size.
    (f"""r = Size (x) k = Constant <value = int64 {{8}}> () c = Equal (r, k) {BRANCHES}""", ["no"]),
    (f"h = Constant <value = bool {{1}}> () c = Not (h) {BRANCHES}", ["yes"]),
    (f"s = ReduceSum <keepdims = 0> (x) c = Cast <to = 9> (s) {BRANCHES}", []),
    (f"n = Constant <value = int64 {{0}}> () {TRUE} {LOOP}", ["in"]),
    (f"{ONE} c = Constant <value = bool {{0}}> () {LOOP}", ["in"]),
    (f"{ONE} {TRUE} {LOOP}", []),
]


@pytest.mark.parametrize(("nodes", "dead"), DEAD)
def test_a_body_that_a_constant_switches_off_never_runs(
    tmp_path: Path, nodes: str, dead: list[str]
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parsed(f"(float[4,2] x) => (float[] y) {{ {nodes} }}"), path)
    assert [site.node for site in scan(path) if site.never_runs] == dead


def test_a_given_size_decides_which_branch_runs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    rank = "r = Size (x) k = Constant <value = int64 {8}> () c = Equal (r, k)"
    onnx.save(parsed(f"(float[n,2] x) => (float[] y) {{ {rank} {BRANCHES} }}"), path)

    def dead(**sizes: int) -> list[str]:
        return [site.node for site in scan(path, FixedSizes(sizes)) if site.never_runs]

    assert (dead(), dead(n=4), dead(n=6)) == ([], ["no"], ["yes"])


def test_a_condition_that_a_caller_may_override_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for initializer, condition in (("c = {1}", ""), ("h = {1}", "c = Not (h)")):
        graph = f"(float[4,2] x, bool {initializer}) => (float[] y) {{ {condition} {BRANCHES} }}"
        onnx.save(parsed(graph), path)
        assert [site.never_runs for site in scan(path)] == [None, None]


def test_after_an_if_whose_condition_is_known_a_value_is_that_of_the_branch_that_runs(
    tmp_path: Path,
) -> None:
    graph = """(float[4,2] x) => (float[] a) { c = Constant <value = bool {0}> ()
        y = If (c) <then_branch = t () => (float[1] d) { d = Constant <value_floats = [1.0]> () },
            else_branch = e () => (float[2,4] f) { f = Transpose (x) }>
        [cut] a, b = Split <axis = 1, num_outputs = 2> (y) }"""
    onnx.save(parsed(graph), tmp_path / "model.onnx")
    assert [site.shape for site in scan(tmp_path / "model.onnx")] == [(2, 4)]


def test_a_split_in_a_body_of_a_body_that_never_runs_never_runs(tmp_path: Path) -> None:
    inner = BRANCHES.replace("y = If (c)", "z = If (h)")
    graph = f"""(float[4,2] x, bool h) => (float[] y) {{ c = Constant <value = bool {{0}}> ()
        y = If (c) <then_branch = t () => (float[p,q] z) {{ {inner} }},
            else_branch = e () => (float[p,q] u) {{ u = Identity (x) }}> }}"""
    onnx.save(parsed(graph), tmp_path / "model.onnx")
    reasons = {site.never_runs for site in scan(tmp_path / "model.onnx")}
    assert reasons == {"it is in the then_branch of If #1 of net, whose condition is always false"}
