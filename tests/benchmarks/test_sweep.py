"""The sweep over sizes: its splits, its bars and its picture."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import gpu, heat_map, sweep
from benchmarks.cases import SWEEP
from benchmarks.prediction import GPUS
from benchmarks.results import FORMAT
from benchmarks.sweep import FAMILIES, LARGE, SIZES, Predicted
from tests.counts import model
from tests.counts.predictions import predict
from tests.host_cuda import harness
from tests.support import nvrtc

# The least predicted fractions, over all sizes and those of at least 64 MiB; for other GPUs, the
# least share of what an H200 reaches. Those that `rows` copies, and all families.
LEAST = {"H100": (0.97, 0.98), "H200": (0.95, 0.97), "B200": (0.89, 0.96)}
MIN_OF_ALL = {"H100": (0.81, 0.96), "H200": (0.73, 0.9), "B200": (0.68, 0.82)}
MIN_OF_H200 = 0.8
WIDE = [
    family for family in FAMILIES if family.name in ("2 halves, axis 0", "QKV", "8 x 301 bytes")
]

needs_compilers = pytest.mark.skipif(
    bool(harness.missing() or nvrtc.missing()), reason=str(harness.missing() or nvrtc.missing())
)


def test_sizes_are_powers_of_two_with_three_steps_between() -> None:
    assert (SIZES[0], SIZES[-1], len(SIZES)) == (1 << 20, 1 << 30, 10 * (1 + 3) + 1)
    assert SIZES[::4] == tuple(1 << power for power in range(20, 31))
    assert list(SIZES) == sorted(set(SIZES))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("placement", sweep.PLACEMENTS)
def test_cases_of_a_family_have_about_the_size_that_is_asked_for(
    family: sweep.Family, placement: str
) -> None:
    for size in SIZES:
        case = family.case(size, placement)
        assert 0.8 * size <= case.total_bytes <= size
        assert (case.alignments == (16, 16)) == (placement == "aligned")


def test_every_case_of_a_sweep_has_a_unique_name() -> None:
    names = [case.name for case in sweep.cases()]
    assert len(names) == len(set(names)) == len(FAMILIES) * len(sweep.PLACEMENTS) * len(SIZES)
    assert [case.name for case, _ in gpu._sweep()] == names


def check(row: Predicted, least: tuple[float, float], h200: Predicted) -> None:
    for size, fraction, h200_fraction in zip(SIZES, row.fractions, h200.fractions, strict=True):
        assert least[size >= LARGE] <= fraction <= 1, (row.family, row.placement, row.gpu, size)
        if row.gpu not in LEAST:
            assert fraction >= MIN_OF_H200 * h200_fraction


def predictions(families: list[sweep.Family], builds: Path) -> list[tuple[Predicted, Predicted]]:
    """All rows, each with that of an H200."""
    rows = list(predict(builds, families))
    assert len(rows) == len(families) * 2 * len(GPUS)
    h200 = {(row.family, row.placement): row for row in rows if row.gpu == "H200"}
    return [(row, h200[row.family, row.placement]) for row in rows]


@needs_compilers
def test_predicted_speeds_of_wide_outputs_reach_their_minimum_at_every_size(builds: Path) -> None:
    for row, h200 in predictions(WIDE, builds):
        check(row, LEAST.get(row.gpu, (0.9, 0.9)), h200)


@needs_compilers
@pytest.mark.exhaustive
def test_predicted_speeds_of_every_family_reach_their_minimum_at_every_size(builds: Path) -> None:
    for row, h200 in predictions(list(FAMILIES), builds):
        check(row, MIN_OF_ALL.get(row.gpu, (0.9, 0.9)), h200)


@needs_compilers
def test_the_sweep_command_writes_a_file_that_the_plot_command_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.json"
    assert model.main(["--sweep", "--only", "2 halves", "--json", str(path)]) == 0
    output_lines = capsys.readouterr().out.splitlines()
    columns = [text.split()[4:6] for text in output_lines[:2]]
    assert columns == [["aligned", "H100"], ["aligned", "H200"]]
    report = json.loads(path.read_text())
    assert report["environment"]["command"][2:4] == ["tests.counts.model", "--sweep"]
    assert len(report["rows"]) == len(output_lines) == 2 * len(GPUS)
    assert command.main(["plot", str(path)]) == 0
    names = {"sweep-sweep.svg", "sweep-sweep.png"}
    assert {line.rpartition("/")[2] for line in capsys.readouterr().out.split()} == names
    assert (tmp_path / "sweep-sweep.png").stat().st_size > 10_000


def test_measured_speeds_are_drawn_relative_to_the_fastest_copy(tmp_path: Path) -> None:
    case = FAMILIES[1].case(SIZES[4], "odd")
    head = {"case": case.name, "kind": SWEEP, "at": case.at, "status": "ok"}
    rows: list[dict[str, Any]] = [
        {**head, "peer": peer, "seconds": {"median": seconds}}
        for peer, seconds in (("dmlsplit", 2.0), ("memcpy", 1.8), ("copy kernel", 1.5))
    ]
    assert heat_map.measured(rows, "Card") == {"Card": {"QKV, odd": {SIZES[4]: 0.75}}}
    assert heat_map.measured(rows[:1], "Card") == {}
    environment = {"card": {"name": "Card"}, "commit": "abc", "time": "2026-11-24"}
    run = {"kind": "gpu", "rows": rows, "environment": environment, "format": FORMAT}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**run, "resumed": [], "after": {}}))
    assert command.main(["plot", str(path)]) == 0
    assert (tmp_path / "run-sweep.png").stat().st_size > 1000
