"""The sectors, bytes in flight and instructions of the kernels on the table of workloads."""

import json
from collections import Counter
from dataclasses import asdict
from math import prod
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import model
from benchmarks.workloads import WORKLOADS, Workload, scaled
from dmlsplit.backends.cuda.planner import WARP_OUTPUTS
from tests.host_cuda import harness
from tests.support import nvrtc

MOST_SECTORS = 1.03
LEAST_VECTORS = 0.95
LARGE = 64_000_000
# The clocks that an SM of an H200 has for 128 bytes at the speed of its memory.
CYCLES = 15
MOST_WAVEFRONTS = CYCLES // 2
# The bars for the machine code: instructions that a warp may issue per 512 bytes, by workload.
MOST_ISSUED = {
    1: 26, 2: 26, 3: 26, 4: 26, 5: 26, 6: 27, 7: 26, 8: 26, 9: 46, 10: 20,
    11: 20, 12: 20, 13: 26, 14: 26, 15: 63, 16: 26, 17: 23, 18: 22, 19: 18, 20: 17,
    21: 31, 22: 62, 23: 66, 24: 52, 25: 26, 26: 30, 27: 20, 28: 20, 29: 29, 30: 23,
    31: 29, 32: 29, 33: 62, 34: 45, 35: 64, 36: 20,
}  # fmt: skip
# Bytes that threads load per byte that they store, if it is not close to 1: windows include the
# bytes between the elements, and at odd addresses a fourth vector for three full ones.
MOST_LOADED = {31: 2, 32: 2, 34: 4 / 3}
PACKED = [workload for workload in WORKLOADS if workload.strides is None]


@pytest.fixture(scope="module")
def figures(builds: Path) -> dict[int, model.Figures]:
    lacking = harness.missing() or nvrtc.missing()
    if lacking:
        pytest.skip(lacking)
    found = model.rows(WORKLOADS, builds)
    return {row.number: row for row in found}


each = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


@each
def test_sectors_are_close_to_the_minimum(
    workload: Workload, figures: dict[int, model.Figures]
) -> None:
    row = figures[workload.number]
    assert 1 <= round(row.mean("read_ratio"), 6) <= MOST_SECTORS
    assert 1 <= round(row.mean("write_ratio"), 6) <= MOST_SECTORS


@pytest.mark.parametrize("workload", PACKED, ids=lambda workload: workload.name)
def test_packed_rows_are_stored_in_vectors(
    workload: Workload, figures: dict[int, model.Figures]
) -> None:
    assert figures[workload.number].mean("vector_share") >= LEAST_VECTORS


@each
def test_large_inputs_keep_the_memory_busy(
    workload: Workload, figures: dict[int, model.Figures]
) -> None:
    for launch in figures[workload.number].launches:
        if launch.total_bytes > LARGE:
            assert launch.in_flight >= model.IN_FLIGHT_BYTES


@each
def test_shared_memory_keeps_up(workload: Workload, figures: dict[int, model.Figures]) -> None:
    wavefronts = figures[workload.number].mean("wavefronts")
    assert wavefronts <= MOST_WAVEFRONTS
    assert (wavefronts > 0) == any(
        launch.kernel in ("tile", "transpose") for launch in figures[workload.number].launches
    )


@each
def test_a_warp_stores_to_few_outputs(
    workload: Workload, figures: dict[int, model.Figures]
) -> None:
    """Different entries of constant tables, such as addresses, reach a warp's lanes in turns."""
    assert 1 <= figures[workload.number].mean("warp_outputs") <= WARP_OUTPUTS


@each
def test_lines_are_written_whole(workload: Workload, figures: dict[int, model.Figures]) -> None:
    assert figures[workload.number].mean("write_line_ratio") <= MOST_SECTORS


@each
def test_a_dispatch_is_one_launch(workload: Workload, figures: dict[int, model.Figures]) -> None:
    """A dispatch is more than one launch only if the pointers of all outputs do not fit one.

    Outputs of a few bytes beside a very wide one use another kernel, whose tables have room for
    about 1,000 outputs.
    """
    pointers = len(workload.sizes) + 1
    most = -(-pointers * 8 // model.H200.limits.parameter_bytes)
    by_kernel = Counter(launch.kernel for launch in figures[workload.number].launches)
    assert by_kernel.pop("tile", 0) <= -(-len(workload.sizes) // 1000)
    assert sum(by_kernel.values()) <= most


# Harder than the table: many outputs of a few bytes, whose rows are in the same banks.
NARROW = [
    Workload(1, "64 x 1 B", (1 << 20, 64), "uint8", 1, (1,) * 64),
    Workload(2, "256 x 1 B", (1 << 18, 256), "uint8", 1, (1,) * 256),
    Workload(3, "4000 x 1 B", (1 << 16, 4000), "uint8", 1, (1,) * 4000),
    Workload(4, "2000 x 2 B", (1 << 16, 2000), "uint16", 1, (1,) * 2000),
    Workload(5, "90 x 5 B", (1 << 18, 450), "uint8", 1, (5,) * 90),
    Workload(6, "1 and 7 B in turns", (1 << 16, 4000), "uint8", 1, (1, 7) * 500),
]


def test_the_narrowest_rows_keep_up(builds: Path) -> None:
    for row in model.rows(NARROW, builds):
        assert row.mean("write_ratio") <= MOST_SECTORS, row.name
        assert row.mean("write_line_ratio") <= 2, row.name
        assert row.mean("vector_share") >= LEAST_VECTORS, row.name
        assert row.mean("warp_outputs") <= WARP_OUTPUTS, row.name
        assert row.mean("wavefronts") <= CYCLES, row.name


@each
def test_few_instructions_are_issued(workload: Workload, figures: dict[int, model.Figures]) -> None:
    """Every stored byte has been compared. Counting only loads and stores would not show loops."""
    assert figures[workload.number].executed("issue") <= MOST_ISSUED[workload.number]


@each
def test_the_source_and_the_machine_code_have_the_same_counts(
    workload: Workload, figures: dict[int, model.Figures]
) -> None:
    """Two counts of newly drawn blocks: host_cuda's and the interpreter's."""
    row = figures[workload.number]
    by_source = row.mean("wavefronts") * 512 / model.LINE
    assert row.executed("shared_wavefronts") == pytest.approx(by_source, rel=0.05, abs=0.05)
    parts = [row.executed(pipe) for pipe in ("alu", "imad", "lsu", "uniform", "other")]
    assert sum(parts) == pytest.approx(row.executed("issue"))
    assert 1 <= row.executed("load_bytes") <= MOST_LOADED.get(workload.number, 1.2) + 1e-9


@each
def test_scaled_workloads_keep_their_columns(workload: Workload) -> None:
    small = scaled(workload, 1 << 20)
    assert small.shape[workload.axis :] == workload.shape[workload.axis :]
    rows = prod(workload.shape[: workload.axis])
    if workload.number != 26:  # transposed: its rows are interleaved
        assert small.total_bytes <= max(1 << 21, workload.total_bytes // rows)
    assert min(small.shape) >= 1


def test_the_table_says_what_it_found(figures: dict[int, model.Figures]) -> None:
    for row in figures.values():
        assert row.name in model.line(row)
        assert sum(launch.total_bytes for launch in row.launches) == row.total_bytes


def test_the_command_writes_the_figures_and_where_they_were_made(
    figures: dict[int, model.Figures],
    builds: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measure = model.rows
    monkeypatch.setattr(model, "WORKLOADS", WORKLOADS[1:2])
    monkeypatch.setattr(model, "rows", lambda workloads, _: measure(workloads, builds))
    path = tmp_path / "model.json"
    assert command.main(["model", "--json", str(path)]) == 0
    assert model.line(figures[2]) in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert found["workloads"] == [json.loads(json.dumps(asdict(figures[2])))]
    assert found["environment"]["command"][3:] == ["model", "--json", str(path)]
