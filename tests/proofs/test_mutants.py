"""The mistakes of mutants.txt can still be made: each old text is in its file, once."""

import pytest

from tests.proofs import mutants
from tests.proofs.mutants import ROOT, Mutant


@pytest.mark.parametrize("mutant", mutants.mutants())
def test_a_mutant_changes_one_place(mutant: Mutant) -> None:
    assert ROOT.joinpath(mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert ROOT.joinpath(mutant.test.partition("::")[0]).exists()
