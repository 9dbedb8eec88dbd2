"""The mistakes of the lists can still be made: each old text is in its file, once."""

import pytest

from tests.proofs import mutants
from tests.proofs.mutants import ROOT, Mutant

CARD = ROOT / "tests" / "simulated_card"
KERNELS = [*mutants.mutants(CARD / "once_passed.txt"), *mutants.mutants(CARD / "wrong_kernels.txt")]


def change(mutant: Mutant) -> str:
    return f"{mutant.file}: {mutant.new.strip()}"


@pytest.mark.parametrize("mutant", [*mutants.mutants(), *KERNELS], ids=change)
def test_a_mutant_changes_one_place(mutant: Mutant) -> None:
    assert ROOT.joinpath(mutant.file).read_text("utf-8").count(mutant.old) == 1


@pytest.mark.parametrize("mutant", mutants.mutants(), ids=change)
def test_a_mutant_names_a_test_that_exists(mutant: Mutant) -> None:
    assert ROOT.joinpath(mutant.test.partition("::")[0]).exists()


def test_the_self_test_meets_thirty_wrong_kernels() -> None:
    assert len(KERNELS) > 30
    assert {mutant.test for mutant in KERNELS} == {"splits", "beyond 4 GiB"}
