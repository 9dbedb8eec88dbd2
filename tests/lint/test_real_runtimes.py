"""The table of runtimes against every real ONNX Runtime from 1.16 on that installs here.

Generated models at the edges of the table are loaded and run by the CPU package of each release,
which has the same loader as the one with DirectML. Each release has its own virtual environment,
in the folder that DMLSPLIT_RUNTIMES names, where they stay, or in a temporary one.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from dmlsplit.frontends.onnx import scan
from dmlsplit.lint.loading import load_violations
from dmlsplit.lint.onnxruntime import cpu_faults, cpu_violations
from dmlsplit.lint.placement import outcome_of_effects
from dmlsplit.lint.runtimes import Release, runtime_table, version_text
from dmlsplit.lint.target import Runtime, Target, resolve_target
from dmlsplit.lint.verdict import Outcome
from dmlsplit.models.site import Known, SplitSite
from tests.support.advice import external
from tests.support.models import halves, one_split, sequence, split_without_sizes

RELEASES = [r for r in runtime_table().onnxruntime if r.version >= (1, 16)]


def models(release: Release) -> dict[str, onnx.ModelProto]:
    """Models at the edges of what a release loads and runs."""
    opset, ir = release.opset.value, release.ir.value
    kinds = "float double float16 bool int8 uint8 int16 uint16 int32 uint32 int64 string".split()
    pieces = {
        f"{size}_into_{count}": divided(size, count)
        for size, count in ((6, 4), (5, 4), (7, 3), (0, 3), (6, 3))
    }
    return {
        "newest": halves(opset, ir),
        "newer_opset": halves(opset + 1, ir),
        "newer_ir": halves(18, ir + 1),
        **{f"opset_{n}": halves(n, 7) for n in (7, 9, 11, 13, 18)},
        "split_1": halves(1, 3),
        "bfloat16": halves(13, 8, "bfloat16"),
        "rank_9": halves(18, 8, shape="1,8" + ",1" * 7),
        **{f"sequence_{kind}": sequence(kind) for kind in kinds},
        "squeezed": sequence("float", "1", keepdims=0),
        "not_squeezed": sequence("float", "2", keepdims=0),
        "unnamed_split": divided(6, 3, split=', ""'),
        "no_count": older(split_without_sizes((2, 6))),
        "external_sizes": older(external()),
        "empty": older(one_split(onnx.TensorProto.FLOAT, (6,), sizes=(2, 0, 4), axis=0)),
        "wrong_sum": older(one_split(onnx.TensorProto.FLOAT, (6,), sizes=(2, 5), axis=0)),
        "wrong_axis": older(one_split(onnx.TensorProto.FLOAT, (6,), sizes=(2, 4), axis=3)),
        **pieces,
    }


def older(content: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with an IR version that every release from 1.9 on loads."""
    content.ir_version = 8
    return content


def divided(size: int, count: int, split: str = "") -> onnx.ModelProto:
    """A Split-18 of `size` elements with num_outputs, which need not divide them."""
    names = ", ".join(f"y{i}" for i in range(count))
    ends = f"(float[{size}] x) => ({', '.join(f'float[] y{i}' for i in range(count))})"
    body = f"{{ {names} = Split <axis = 0, num_outputs = {count}> (x{split}) }}"
    header = '<ir_version: 8, opset_import: ["" : 18]>'
    return onnx.parser.parse_model(f"{header} net {ends} {body}")


def expected(site: SplitSite, target: Target) -> object:
    """What dmlsplit says that the CPU package does: it fails, or makes these pieces."""
    outcome = outcome_of_effects([*load_violations(site, target)])
    outcome = outcome or outcome_of_effects(
        [*cpu_violations(site, target), *cpu_faults(site, target)]
    )
    if outcome in (Outcome.NOT_LOADED, Outcome.FAILS):
        return "load" if outcome is Outcome.NOT_LOADED else "run"
    if site.element_type == "BFLOAT16":
        return "loads"
    assert isinstance(site.state, Known)
    shape, axis = [int(n) for n in site.shape or () if isinstance(n, int)], site.axis or 0
    keeps = site.keeps_axis is True
    before, after = shape[:axis], shape[axis + 1 :]
    return [[*before, *([size] if keeps else []), *after] for size in site.state.pieces]


def target_of(release: Release) -> Target:
    """The release as a target, with or without a DirectML package."""
    limits = release.opset, release.ir
    runtime = Runtime("", *limits, *limits, release.provider, release.version)
    return Target(resolve_target().level, "", runtime)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Release], Path]:
    """The Python of an environment with a release; the test is skipped if pip cannot get it."""
    folder = Path(os.environ.get("DMLSPLIT_RUNTIMES") or tmp_path_factory.mktemp("runtimes"))

    def install(release: Release) -> Path:
        version = version_text(release.version)
        place = folder / f"onnxruntime-{version}-{sys.version_info.major}{sys.version_info.minor}"
        program = place / ("Scripts" if os.name == "nt" else "bin") / "python"
        if not (place / "installed").exists():
            venv.create(place, with_pip=True, clear=True)
            packages = [f"onnxruntime=={version}.*", "numpy<2"]
            pip = [program, "-m", "pip", "install", "--quiet", *packages]
            process = subprocess.run(pip, capture_output=True, text=True, check=False)
            if process.returncode:
                pytest.skip(f"pip cannot install onnxruntime {version}: {process.stderr[-300:]}")
            (place / "installed").touch()
        return program

    return install


def _marked(release: Release) -> Any:
    """The slow run installs the newest release with DirectML; .ci/exhaustive all."""
    is_newest = release.version == runtime_table().newest.version
    mark = pytest.mark.slow if is_newest else pytest.mark.exhaustive
    return pytest.param(release, id=str(release), marks=mark)


# Run by the Python of an environment: for each model, the sizes of the pieces, or what fails.
PROGRAM = """
import json, sys, numpy, onnxruntime
onnxruntime.set_default_logger_severity(4)
def result(path):
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception:
        return "load"
    value = session.get_inputs()[0]
    kind = value.type[7:-1]
    if kind == "bfloat16":
        return "loads"
    names = {"float": "float32", "double": "float64", "string": "object"}
    x = numpy.zeros(value.shape, names.get(kind, kind))
    try:
        pieces = session.run(None, {value.name: x})
    except Exception:
        return "run"
    pieces = pieces[0] if isinstance(pieces[0], list) else pieces
    return [list(piece.shape) for piece in pieces]
print(json.dumps({path: result(path) for path in sys.argv[1:]}))
"""


@pytest.mark.parametrize("release", [_marked(release) for release in RELEASES])
def test_a_release_loads_and_splits_what_the_table_says(
    release: Release, python: Callable[[Release], Path], tmp_path: Path
) -> None:
    program, target = python(release), target_of(release)
    expected_results: dict[str, object] = {}
    for name, content in models(release).items():
        path = tmp_path / f"{name}.onnx"
        options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
        onnx.save(content, path, **(options if content.graph.initializer else {}))
        (site,) = scan(path)
        expected_results[str(path)] = expected(site, target)
    line = [program, "-c", PROGRAM, *expected_results]
    process = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(process.stdout.splitlines()[-1]) == expected_results


def test_the_newest_model_of_a_release_is_expected_to_run_and_newer_ones_to_fail(
    tmp_path: Path,
) -> None:
    """Without a runtime: the comparison would be empty if all models were expected to fail."""
    for release in RELEASES:
        target, outcomes = target_of(release), []
        for name in ("newest", "newer_opset", "newer_ir"):
            path = tmp_path / "m.onnx"
            onnx.save(models(release)[name], path)
            (site,) = scan(path)
            outcomes.append(expected(site, target))
        assert outcomes == [[[1, 4], [1, 4]], "load", "load"]
