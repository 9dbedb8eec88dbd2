"""Assessments to report: every verdict, and verdicts about hostile files."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx

import dmlsplit as dml
from dmlsplit.frontends import Invalid, Known, Unknown
from dmlsplit.lint.check import assess
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Assessment, Verdict
from dmlsplit.models.discovery import scan_file
from dmlsplit.models.site import Cause
from tests.support.models import every_verdict
from tests.support.sites import split_site


def verdict_of(content: onnx.ModelProto, folder: Path, **target_options: str) -> Verdict:
    """The verdict of a target on the only split of a model, which is saved in a folder."""
    path = folder / "model.onnx"
    onnx.save(content, path)
    (verdict,) = assess(scan_file(str(path)), resolve_target(**target_options)).verdicts
    return verdict


@cache
def assessment() -> Assessment:
    """Every verdict, at level 2_0, and a file that could not be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(every_verdict(), path)
        sites = [replace(site, file="models/net.onnx") for site in scan_file(str(path))]
    target = resolve_target(windows="19041")
    return assess(sites, target, [("models/bad.onnx", "not an ONNX model to read")])


def harmful(name: str) -> Assessment:
    """Verdicts of sites whose every string comes from a hostile file."""
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4))
    states = Known(desc), Invalid(name or "wrong"), Unknown(name or "dynamic", Cause.DYNAMIC)
    names = dict.fromkeys(("file", "graph", "node"), name)
    sites = [
        split_site(**names, index=index, state=state, warnings=(name,), format="")
        for index, state in enumerate(states)
    ]
    return assess(sites, resolve_target(feature_level="2_0"), [(name, name)])


NAMES = [
    "\x1b[2J",
    "a\nb::error::c",
    "\r",
    "]]>&<\"'",
    "\x00\x07\ufffe",
    "\ud800",
    "%0A::",
    "",
    "\u202egnp.exe",
    "a" * 5000,
    "[click](https://example.com) {0} <img src=x> `a` **b** | \\](c)",
]
