"""Random graphs: shapes are never wrong and rarely unknown, and no size contradicts a verdict."""

from collections import Counter
from pathlib import Path
from random import Random

import onnx
import pytest

from dmlsplit.frontends import Known
from dmlsplit.frontends.onnx import FixedSizes, scan
from dmlsplit.lint.check import check_site
from dmlsplit.lint.target import Target, resolve_target
from dmlsplit.lint.verdict import FAILING, Outcome, Verdict
from tests.support.random_graphs import dynamic_chain, dynamic_names, static_chains


@pytest.mark.parametrize(
    ("models", "chains"),
    [
        (1, 50),
        pytest.param(1, 150, marks=pytest.mark.slow),
        pytest.param(60, 50, marks=pytest.mark.exhaustive),
    ],
    ids=["50 graphs", "150 graphs", "3000 graphs"],
)
def test_static_shapes_of_random_graphs_are_those_of_onnx_runtime(
    tmp_path: Path, models: int, chains: int
) -> None:
    """The right shapes are those of ONNX Runtime, which ran each step."""
    for first in range(0, models * chains, chains):
        content, expected_shapes = static_chains(first, chains)
        path = tmp_path / "m.onnx"
        path.write_bytes(content.SerializeToString())
        sites = [site for site in scan(path) if site.node.endswith("cut")]
        assert {site.node: site.shape for site in sites} == expected_shapes
        assert {type(site.state) for site in sites} == {Known}


TARGETS = [
    *(resolve_target(feature_level=level) for level in ("1_0", "2_1", "4_0", "6_4")),
    resolve_target(ort=""),
]


def verdict_on(
    content: onnx.ModelProto, folder: Path, target: Target, sizes: dict[str, int] | None = None
) -> Verdict:
    path = folder / "m.onnx"
    path.unlink(missing_ok=True)  # ext4 takes 3 ms to empty a file
    path.write_bytes(content.SerializeToString())
    (site,) = scan(path, FixedSizes(sizes or {}))
    return check_site(site, target)


def elements(verdict: Verdict) -> int:
    assert verdict.descriptor
    return verdict.descriptor.input_tensor.element_count


SIZES = [1, 2, 3, 5, 8, 64, 1000, 2**16, 2**31]


@pytest.mark.parametrize(
    "graphs",
    [50, pytest.param(2000, marks=pytest.mark.exhaustive)],
    ids=["1000 sizes", "40000 sizes"],
)
def test_no_size_contradicts_a_verdict_on_a_dynamic_graph(tmp_path: Path, graphs: int) -> None:
    outcomes: Counter[Outcome] = Counter()
    beyond = 0
    for seed in range(graphs):
        content, target = dynamic_chain(seed), TARGETS[seed % len(TARGETS)]
        verdict, names = verdict_on(content, tmp_path, target), dynamic_names(content)
        outcomes[verdict.outcome] += 1
        random = Random(seed)
        size_lists = [tuple(random.choice(SIZES) for _ in names) for _ in range(20)]
        for dim_values in dict.fromkeys(size_lists):  # half of them repeat others
            sizes = dict(zip(names, dim_values, strict=True))
            static_verdict = verdict_on(dynamic_chain(seed, sizes), tmp_path, target)
            assert verdict_on(content, tmp_path, target, sizes).outcome is static_verdict.outcome
            name, size = verdict.site.frozen or ("", 0)
            if name and sizes[name] != size:  # the verdict is about one size
                assert static_verdict.outcome in FAILING
            elif verdict.sizes is not None:
                holds = (
                    elements(static_verdict) <= elements(verdict) * verdict.sizes.maximum_product
                )
                beyond += not holds
                assert (static_verdict.outcome is Outcome.RUNS) == holds
            elif verdict.outcome is Outcome.REFUSED_FOR_EVERY_SIZE:
                assert static_verdict.outcome in (Outcome.REFUSED, Outcome.EQUIVALENT)
            elif verdict.outcome is not Outcome.UNKNOWN:
                assert static_verdict.outcome is verdict.outcome
    assert (
        min(outcomes[Outcome.RUNS_FOR_EVERY_SIZE], outcomes[Outcome.REFUSED_FOR_EVERY_SIZE], beyond)
        > 0.1 * graphs
    )
