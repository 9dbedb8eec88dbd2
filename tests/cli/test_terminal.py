"""Exit statuses: an unreadable file outweighs a refused split."""

import pytest

import dmlsplit as dml
from dmlsplit.cli.terminal import ACCEPTED, REFUSED, UNUSABLE, status_of
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.judge import assess
from dmlsplit.lint.target import resolve_target

X = dml.TensorDesc("INT64", (6,))
DESC = dml.SplitOperatorDesc.from_sizes(X, axis=0, sizes=(2, 4))


@pytest.mark.parametrize(
    ("level", "unreadable", "status"),
    [
        ("6_4", [], ACCEPTED),
        ("1_0", [], REFUSED),
        ("6_4", [("f", "why")], UNUSABLE),
        ("1_0", [("f", "why")], UNUSABLE),
    ],
)
def test_the_status_is_the_worst_of_all(
    level: str, unreadable: list[tuple[str, str]], status: int
) -> None:
    site = SplitSite("f", "net", "n", 0, "Split-13", (DESC,))
    assert status_of(assess([site], resolve_target(feature_level=level), unreadable)) == status


def test_the_statuses_are_those_of_the_manual() -> None:
    assert (ACCEPTED, REFUSED, UNUSABLE) == (0, 1, 2)
