"""Random models of every kind: what --write-fixed writes computes the same in ONNX Runtime."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import dmlsplit as dml
from dmlsplit.lint.fix.rewrite import Rewriting
from tests.support.models import session
from tests.support.rewriting import LEVEL_1, LEVEL_2, ORT, rewritten
from tests.support.split_models import Model, Run, runs, split_model

TARGETS = [LEVEL_1, LEVEL_2, {"feature_level": "2_1"}, ORT, ORT]


class Outcome(NamedTuple):
    """What became of a model: how many of its runs were compared, and which differ."""

    counts: Counter[str]
    different: list[str]


def outputs(runner: Any, run: Run) -> Any:
    """Types, shapes and bytes, or None if the model does not run."""
    try:
        return [bits(value) for value in runner.run(None, run.feeds)]
    except Exception:  # ONNX Runtime raises errors of many types
        return None


def bits(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(bits, value))
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes()


def loaded(content: onnx.ModelProto) -> Any:
    """A session, or None if ONNX Runtime does not load the model."""
    try:
        return session(content)
    except Exception:  # errors of many types here too
        return None


def outcome(seed: int, folder: Path) -> Outcome:
    """Rewrite the model of a seed, and compare its runs with those of the original."""
    model, target_options = split_model(seed), Random(seed).choice(TARGETS)
    before = loaded(model.content)
    counts = Counter({"models": 1, "that run": int(before is not None)})
    try:
        rewriting, output = rewritten(model.content, folder, model.given_sizes, **target_options)
    except dml.InvalidArgumentError as error:
        # The user's sizes may contradict the model.
        return Outcome(counts, [f"{seed} {error}"] if "bug of dmlsplit" in str(error) else [])
    if before is None or not output.exists():
        return Outcome(counts, [])
    after = loaded(onnx.load(output))
    counts["rewritten"] += 1
    different = []
    for name in differences(model, before, after, rewriting, counts):
        different.append(f"{seed} {name} {sorted(model.traits)} {target_options}")
    return Outcome(counts, different)


def differences(
    model: Model, before: Any, after: Any, rewriting: Rewriting, counts: Counter[str]
) -> Iterator[str]:
    """The runs that differ; some splits equal their replacements only for sizes of 1 or more."""
    least = max(split.smallest_size or 0 for split in rewriting.replaced)
    for run in runs(model):
        expected = outputs(before, run)
        if expected is None or (least and 0 in run.sizes):
            continue
        counts["runs"] += 1
        counts["runs with other defaults"] += run.is_overridden
        counts["runs at 0"] += 0 in run.sizes
        if after is None or outputs(after, run) != expected:
            yield "overridden" if run.is_overridden else f"at {run.sizes}"


def rewrite_and_compare(seeds: range, folder: Path) -> Counter[str]:
    """Rewrite the model of each seed; no run may differ from the original's. What was compared."""
    counts, different = Counter[str](), []
    for seed in seeds:
        inner = folder / str(seed)
        inner.mkdir()
        result = outcome(seed, inner)
        counts += result.counts
        different += result.different
    assert not different
    return counts


def test_rewritten_random_models_compute_the_same_as_the_original(tmp_path: Path) -> None:
    counts = rewrite_and_compare(range(300), tmp_path)
    # Enough of them are rewritten and run that the comparison means something.
    assert counts["models"] == 300
    assert counts["rewritten"] > 60, counts
    assert counts["runs"] > 250, counts
    assert counts["runs at 0"] > 5, counts
    assert counts["runs with other defaults"] > 5, counts


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=pytest.mark.slow if part < 2 else pytest.mark.exhaustive)
        for part in range(9)
    ],
)
def test_many_rewritten_models_compute_the_same_as_the_original(tmp_path: Path, part: int) -> None:
    rewrite_and_compare(range(1000 * (part + 1), 1000 * (part + 2)), tmp_path)
