"""The rules agree with every stored observation of a real DirectML.dll."""

from pathlib import Path

import pytest

from tests.conformance.check import compare
from tests.conformance.conftest import Observe
from tests.conformance.observation import read_observation
from tests.conformance.report import text_report
from tests.conformance.stand_in.build import edited, observed

FOLDER = Path(__file__).with_name("observations")
STORED = sorted(FOLDER.glob("*.json"))


def hold(path: Path) -> None:
    """Fail if the rules differ from an observation of the real DirectML."""
    comparison = compare(read_observation(path))
    assert not comparison.observation.stand_in, f"{path.name} is of a stand-in, not of DirectML"
    assert comparison.agrees, text_report(comparison)


def test_the_rules_agree_with_every_stored_observation() -> None:
    for path in STORED:
        hold(path)


def test_the_readme_says_whether_there_are_observations() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"README.md", *(p.name for p in STORED)}
    text = (FOLDER / "README.md").read_text("utf-8")
    assert ("There are no files yet" in text) == (not STORED)


def test_a_stand_in_is_never_stored(observe: Observe) -> None:
    with pytest.raises(AssertionError, match="of a stand-in"):
        hold(observe("any-sum"))


def test_a_stored_observation_that_contradicts_the_rules_fails(observe: Observe) -> None:
    def real(switch: str) -> Path:
        path = observe(switch)
        return edited(path, directml=observed(path)["directml"] | {"stand_in": False})

    with pytest.raises(AssertionError, match="rule-SPLIT-AXIS-SUM-less"):
        hold(real("any-sum"))
    hold(real("take-overlap"))
