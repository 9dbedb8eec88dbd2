"""Results files: which are resumed, and which are refused."""

from pathlib import Path

import pytest

from benchmarks.results import Results, ResultsError, load

MACHINE = {"time": "2026-01-01T00:00:00+00:00", "commit": "c0ffee", "machine": {"processor": "p"}}


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
