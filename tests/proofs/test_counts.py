"""The sectors, bytes in flight and instructions of the kernels on the table of workloads."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import prediction
from benchmarks.cases import Case
from benchmarks.workloads import NARROWEST, WORKLOADS
from dmlsplit.backends.cuda.planner import WARP_OUTPUTS
from tests.counts import model
from tests.host_cuda import harness
from tests.support import nvrtc

MAX_SECTORS = 1.03
MIN_VECTORS = 0.95
LARGE = 64_000_000
# The clocks that an SM of an H200 has for 128 bytes at the speed of its memory.
CYCLES = 15
MAX_WAVEFRONTS = CYCLES // 2
# `strided` puts elements in order in shared memory too, if they are not vectors of aligned outputs.
STAGED = {"points, outputs at 4", "7 x 3 bytes", "RGB, odd outputs"}
# Where blocks read more sectors than they must: rows of a few hundred bytes share them with others.
MAX_READ = {"8 x 301 bytes": 1.13, "16 x 101 bytes": 1.4}
# Bytes that the L1 cache serves to loads, for each one that `rows` copies at any alignment: more if
# many vectors hold the end of a row.
MAX_SERVED, SERVED = 2.2, {"8 x 301 bytes": 2.4, "16 x 101 bytes": 3.2}
# The least predicted fraction on an H100 and an H200: while memory is busy, and of whole launches.
MIN_STEADY, MIN_PREDICTED = 0.91, 0.91


@pytest.fixture(scope="module")
def compilers() -> None:
    """Skips a test where a compiler that it needs is not installed."""
    lacking = harness.missing() or nvrtc.missing()
    if lacking:
        pytest.skip(lacking)


@pytest.fixture(scope="module")
def figures(builds: Path, compilers: None) -> dict[int, model.Figures]:
    """The figures of all workloads, by number."""
    model_rows = model.rows(WORKLOADS, builds)
    return {row.number: row for row in model_rows}


@pytest.fixture
def row(workload: Case, figures: dict[int, model.Figures]) -> model.Figures:
    """The figures of a workload."""
    return figures[int(workload.at)]


every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


@every_workload
def test_memory_is_read_and_written_in_whole_sectors_and_lines(
    workload: Case, row: model.Figures
) -> None:
    assert 1 <= round(row.mean("read_ratio"), 6) <= MAX_READ.get(row.name, MAX_SECTORS)
    assert 1 <= round(row.mean("write_ratio"), 6) <= MAX_SECTORS
    assert row.mean("write_line_ratio") <= MAX_SECTORS
    if workload.strides is None:
        assert row.mean("vector_share") >= MIN_VECTORS


@every_workload
def test_shared_memory_and_tables_do_not_limit_the_speed(row: model.Figures) -> None:
    wavefronts = row.mean("wavefronts")
    assert wavefronts <= MAX_WAVEFRONTS
    assert (wavefronts > 0) == (row.name in STAGED) | any(
        launch.kernel in ("tile", "transpose") for launch in row.launches
    )
    # Entries of constant tables, such as addresses, reach a warp's lanes one after another.
    assert 1 <= row.mean("warp_outputs") <= WARP_OUTPUTS
    for launch in row.launches:
        assert launch.total_bytes <= LARGE or launch.in_flight >= model.IN_FLIGHT_BYTES
        assert launch.kernel != "rows" or launch.executed.served <= SERVED.get(row.name, MAX_SERVED)


@every_workload
def test_a_dispatch_is_one_launch(workload: Case, row: model.Figures) -> None:
    """A dispatch is more than one launch only if the pointers of all outputs do not fit one.

    Outputs of a few bytes beside a very wide one use another kernel, whose tables have room for
    about 1,000 outputs.
    """
    pointers = len(workload.sizes) + 1
    most = -(-pointers * 8 // model.H200.limits.parameter_bytes)
    by_kernel = Counter(launch.kernel for launch in row.launches)
    assert by_kernel.pop("tile", 0) <= -(-len(workload.sizes) // 1000)
    assert sum(by_kernel.values()) <= most


def test_the_narrowest_rows_stay_within_the_limits_of_memory_accesses(
    builds: Path, compilers: None
) -> None:
    for row in model.rows(NARROWEST, builds):
        assert row.mean("write_ratio") <= MAX_SECTORS, row.name
        assert row.mean("write_line_ratio") <= 2, row.name
        assert row.mean("vector_share") >= MIN_VECTORS, row.name
        # Threads of `tile` look an output up once for many vectors.
        assert row.mean("warp_outputs") <= 2 * WARP_OUTPUTS, row.name
        assert row.mean("wavefronts") <= CYCLES, row.name


# The bars for the machine code: instructions that a warp may issue per 512 bytes, by workload.
# Blocks of 8, 13 and 14, which are small, have one round, so that all bytes are in flight at once.
MAX_ISSUED = {
    1: 14, 2: 25, 3: 14, 4: 14, 5: 14, 6: 18, 7: 14, 8: 21, 9: 36, 10: 10,
    11: 10, 12: 14, 13: 25, 14: 25, 15: 34, 16: 17, 17: 19, 18: 21, 19: 18, 20: 17,
    21: 31, 22: 42, 23: 43, 24: 23, 25: 18, 26: 30, 27: 10, 28: 13, 29: 26, 30: 11,
    31: 29, 32: 29, 33: 42, 34: 39, 35: 42, 36: 14, 37: 48, 38: 66, 39: 34, 40: 53,
    41: 21, 42: 36, 43: 20, 44: 11, 45: 17, 46: 56, 47: 43, 48: 36, 49: 32, 50: 31,
    51: 33, 52: 61,
}  # fmt: skip


@every_workload
def test_issued_instructions_stay_within_the_limit_of_the_workload(row: model.Figures) -> None:
    """Every stored byte has been compared. Counting only loads and stores would not show loops."""
    assert row.executed("issue") <= MAX_ISSUED[row.number]


@every_workload
def test_the_predicted_speed_of_each_workload_reaches_its_minimum(row: model.Figures) -> None:
    speeds = row.predicted
    assert min(speeds["H100"], speeds["H200"]) >= MIN_PREDICTED
    for gpu in prediction.GPUS[:2]:
        assert row.steady(gpu) >= MIN_STEADY


# The least predicted fraction of what the same workload reaches on an H200.
MIN_OF_H200 = {"RTX 4090": 0.8, "L4": 0.8, "T4": 0.8, "B200": 0.91}


@every_workload
def test_each_gpu_reaches_its_minimum_share_of_the_predicted_speed_of_an_h200(
    row: model.Figures,
) -> None:
    for name, least in MIN_OF_H200.items():
        assert row.predicted[name] >= least * row.predicted["H200"]


def test_blocks_write_to_the_expected_number_of_dram_rows(
    figures: dict[int, model.Figures],
) -> None:
    """Blocks of workload 1 write 16 KiB to one output, those of 26 lines of 256 bytes."""
    stored_rows = {number: row.executed("stored_rows") for number, row in figures.items()}
    assert stored_rows[1] == pytest.approx(1, rel=0.01)
    assert stored_rows[26] == pytest.approx(8, rel=0.01)
    assert all(stored_rows[number] <= row.executed("row_turns") for number, row in figures.items())


# Bytes that threads load for each one that they store, where it is not nearly one: windows hold
# what is between the elements, and at odd addresses a fourth vector where three are full. `rows`
# reads two vectors for one, unless they are aligned alike, and slabs of `tile` some rows twice.
MAX_LOADED = {
    "FSDP copy-out": 2.1,
    "vocabulary, odd offset": 2.1,
    "bytes, misaligned": 2.1,
    "every second byte": 2,
    "every second half": 2,
    "RGB, odd pitch": 4 / 3,
    "QKV, odd phases": 2.1,
    "8 x 301 bytes": 2.1,
    "16 x 101 bytes": 2.4,
    "RGB at odd addresses": 4 / 3,
    "complex64, input at 8": 1.25,
    "RGBA at odd addresses": 1.25,
    "YOLO head 85, at 6": 1.45,
    "every second float": 2,
    "every fourth half": 4,
}


@every_workload
def test_host_cuda_and_the_interpreter_count_about_the_same_wavefronts(row: model.Figures) -> None:
    """Two counts of newly drawn blocks: host_cuda's and the interpreter's."""
    by_source = row.mean("wavefronts") * 512 / model.LINE
    assert row.executed("shared_wavefronts") == pytest.approx(by_source, rel=0.05, abs=0.05)
    parts = [row.executed(pipe) for pipe in ("alu", "imad", "lsu", "uniform", "other")]
    assert sum(parts) == pytest.approx(row.executed("issue"))
    assert 1 <= row.executed("load_bytes") <= MAX_LOADED.get(row.name, 1.2) + 1e-9


def test_the_model_command_writes_the_figures_and_their_environment(
    figures: dict[int, model.Figures],
    builds: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measure = model.rows
    second = WORKLOADS[1]
    monkeypatch.setattr(model, "WORKLOADS", [second])
    monkeypatch.setattr(model, "rows", lambda workloads, _: measure(workloads, builds))
    path = tmp_path / "model.json"
    assert model.main(["--json", str(path)]) == 0
    expected = figures[int(second.at)]
    assert model.line(expected) in capsys.readouterr().out
    assert sum(launch.total_bytes for launch in expected.launches) == expected.total_bytes
    report = json.loads(path.read_text())
    assert report["workloads"] == [json.loads(json.dumps(asdict(expected)))]
    assert report["environment"]["command"][2:] == ["tests.counts.model", "--json", str(path)]
    # The formula's result for earlier figures is printed beside today's.
    assert model.earlier(path) == {expected.name: expected.predicted}
    assert model.main(["--before", str(path)]) == 0
    assert model.line(expected, expected.predicted.values()) in capsys.readouterr().out
