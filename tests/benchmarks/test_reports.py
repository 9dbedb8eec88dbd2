"""Comparisons, bars and plots, which are made from results."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import cases
from benchmarks.bars import bars
from benchmarks.compare import compare, report
from benchmarks.results import Results, ResultsError, failed, load, measured
from benchmarks.timing import summary
from tests.support.benchmarks import MACHINE


def timed(case: str, peer: str, median: float, spread: float = 0.01) -> dict[str, Any]:
    samples = [median * (1 - 2 * spread), median, median * (1 + 2 * spread)]
    row = measured(summary(samples), samples, 1 << 20)
    return {"case": case, "kind": "case", "at": 0, "bytes": 1 << 20, "peer": peer, **row}


def a_run(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"rows": list(rows)}


def test_changes_beyond_noise_are_reported() -> None:
    a = a_run(timed("x", "p", 1e-3), timed("x", "q", 1e-3), timed("x", "r", 1e-3, 0.3))
    b = a_run(timed("x", "p", 2e-3), timed("x", "q", 0.5e-3), timed("x", "r", 1.2e-3))
    verdicts = {change.key[2]: change.verdict for change in compare(a, b)}
    assert verdicts == {"p": "slower", "q": "faster", "r": "same"}
    text = report(compare(a, b))
    assert text.index("slower") < text.index("faster")
    assert "1 of 3 rows unchanged" in text


GONE = {**timed("x", "p", 1e-3), **failed(RuntimeError("no"))}


@pytest.mark.parametrize(
    ("a", "b", "verdicts"),
    [
        ([timed("x", "memcpy", 1e-3), timed("x", "p", 2e-3)],
         [timed("x", "memcpy", 2e-3), timed("x", "p", 4e-3)], {"memcpy": "slower", "p": "same"}),
        ([timed("x", "p", 1e-3)], [GONE, timed("x", "q", 1e-3)], {"p": "gone", "q": "new"}),
    ],
    ids=["a slower machine", "new and missing rows"],
)  # fmt: skip
def test_a_slower_machine_and_new_or_missing_rows_are_not_a_slower_program(
    a: list[Any], b: list[Any], verdicts: dict[str, str]
) -> None:
    changes = compare(a_run(*a), a_run(*b))
    assert {change.key[2]: change.verdict for change in changes} == verdicts


def test_every_kind_of_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.plot import SWEEPS, plot

    rows = []
    for kind in (cases.CASES, *SWEEPS):
        for size in (1, 64, 4096):
            for peer, seconds in (("dmlsplit", 1e-3), ("plain copy", 0.9e-3), ("torch", 2e-3)):
                row = timed(f"{kind} {size}", peer, seconds)
                rows.append({**row, "kind": kind, "at": size, "threads": 1})
    data = {"kind": "cpu", "environment": MACHINE, "rows": rows}
    files = plot(data, tmp_path, "run")
    names = {"run-cases", "run-row-width", "run-size", "run-channels", "run-outputs"}
    assert {path.stem for path in files} == names
    for path in files:
        start = path.read_bytes()[:5]
        assert start == (b"<?xml" if path.suffix == ".svg" else b"\x89PNG\r")
    with pytest.raises(ResultsError, match="no finished rows"):
        plot({**data, "rows": []}, tmp_path, "run")


@pytest.mark.parametrize(
    ("commit", "caption_commit"),
    [("0123456789abcdef", "0123456789,"), ("0123456789abcdef+", "0123456789+,")],
)
def test_a_picture_says_whether_the_measured_tree_had_changes(
    commit: str, caption_commit: str
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.plot import _caption

    run = {"kind": "cpu", "environment": {**MACHINE, "commit": commit}}
    assert f"commit {caption_commit} 2026" in _caption(run)


def test_the_readme_agrees_with_the_results_and_the_cases() -> None:
    folder = Path(command.__file__).parent
    text = " ".join((folder / "README.md").read_text().split())
    for name in re.findall(r"`([\w-]+\.json)`", text):
        assert load(folder / "results" / name)["rows"]
    for case in cases.cpu_cases(quick=True):
        kind = {"f4": "float32", "u1": "uint8"}[case.dtype]
        assert f"| {case.name} | {kind} {[*case.shape]} | {case.axis} | " in text
    rows = load(folder / "results" / "dispatch.json")["rows"]
    (row,) = (row for row in rows if row["at"] == 3 and row["peer"] == "dispatch")
    assert f"| bound dispatch | 3 | {row['seconds']['median'] * 1e6:.2f} |" in text


def rows(case: str, kind: str, size: int, **times: float) -> list[dict[str, Any]]:
    """A measured time for each peer; dmlsplit's is what bars compare the others with."""
    head = {"kind": kind, "bytes": size, "threads": 1}
    peer_seconds = ((peer.replace("_", " "), seconds) for peer, seconds in times.items())
    return [{**timed(case, peer, seconds), **head} for peer, seconds in peer_seconds]


def results_of_bars(*measured: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """With whom each bar compares, the ratio of the times, the bar, and whether it is met."""
    return [(bar.other, round(bar.ratio, 2), bar.bar, bar.is_met) for bar in bars(a_run(*measured))]


@pytest.mark.parametrize(
    ("kind", "size", "torch", "expected"),
    [
        (cases.CASES, 1, 1.8e-3, ("torch", 0.9, 1.0, False)),
        (cases.SIZE, 32 << 20, 2.5e-3, ("torch", 1.25, 1.3, False)),
        (cases.NEW, 32 << 20, 2.5e-3, ("torch", 1.25, 1.0, True)),
    ],
    ids=["a case", "a large size", "into new arrays"],
)
def test_a_bar_compares_with_the_fastest_peer(
    kind: str, size: int, torch: float, expected: tuple[str, float, float, bool]
) -> None:
    measured = rows("a", kind, size, dmlsplit=2e-3, torch=torch, openvino=9e-3)
    assert results_of_bars(*measured) == [expected]


def test_a_small_size_has_no_bar() -> None:
    assert results_of_bars(*rows("a", cases.SIZE, 4096, dmlsplit=2e-3, torch=1e-3)) == []


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("RGB, 1 MiB", [("plain copy", 0.7, 0.8, False)]),
        ("7 x 3 bytes", [("plain copy", 0.7, 0.5, True)]),
        ("xyz", []),
    ],
)
def test_a_bar_of_narrow_elements_compares_with_a_plain_copy(
    case: str, expected: list[tuple[str, float, float, bool]]
) -> None:
    measured = rows(case, cases.NARROW, 1 << 20, dmlsplit=1e-3, plain_copy=0.7e-3)
    assert results_of_bars(*measured) == expected


def test_a_bar_of_a_step_compares_with_the_next_smaller_size() -> None:
    measured = [
        *rows("smallest", cases.STEP, 1, dmlsplit=1e-3),
        *rows("larger", cases.STEP, 1, dmlsplit=1.4e-3),
        *rows("largest", cases.STEP, 1, dmlsplit=2.2e-3),
    ]
    assert results_of_bars(*measured) == [
        ("size before", 1.4, 1.5, True),
        ("size before", 1.57, 1.5, False),
    ]


# Results files: which are resumed, and which are refused.


def test_only_an_unfinished_run_of_the_same_kind_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    Results(path, "cpu", MACHINE)
    with pytest.raises(ResultsError, match="kind is cpu; this run's is gpu"):
        Results(path, "gpu", MACHINE)
    with pytest.raises(ResultsError, match="commit is c0ffee"):
        Results(path, "cpu", {**MACHINE, "commit": "other"})
    Results(path, "cpu", MACHINE).finish({})
    with pytest.raises(ResultsError, match="the run in it is complete"):
        Results(path, "cpu", MACHINE)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "not json"])
def test_a_file_that_is_not_a_result_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match="not "):
        load(path)
    with pytest.raises(ResultsError, match="not "):
        Results(path, "cpu", MACHINE)
    assert path.read_text() == text
