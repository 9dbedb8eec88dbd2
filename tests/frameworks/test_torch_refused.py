"""The table of refusals in docs/pytorch.md: each row is refused, with the fix that it gives."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import dmlsplit as dml
from tests.support.command import ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tests.support.torch_tensors import REFUSED  # noqa: E402  (it imports PyTorch)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

PAGE = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
SECTION = PAGE.partition("## What is refused\n")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| (?!tensor |-)(.*?) \|.*\| (.*) \|$", SECTION, re.MULTILINE))


def traced() -> None:
    torch.jit.trace(lambda x: tuple(dml.split(x, 2)), torch.zeros(4))


def splits(*names: str) -> list[Callable[[], Any]]:
    return [lambda name=name: dml.split(REFUSED[name](), 2) for name in names]


# The first words of a row, and calls that are refused.
CALLS = {
    "of a subclass": splits("subclass"),
    "of a wrapper": splits("wrapper"),
    "sparse": splits("sparse"),
    "quantized": splits("quantized"),
    "quint4x2": splits("quint4x2"),
    "in `torch.jit": [traced],
}
# test_torch_distributed.py has the errors of DTensors; other devices are not available here.
ELSEWHERE = {"`DTensor`", "not on"}


def test_every_row_is_tried() -> None:
    rest = [row for row in ROWS if not row.startswith(tuple({*CALLS, *ELSEWHERE}))]
    assert ROWS
    assert not rest


@pytest.mark.parametrize("begin", CALLS)
def test_a_refusal_has_the_fix_of_the_page(begin: str) -> None:
    (fix,) = (fix for row, fix in ROWS.items() if row.startswith(begin))
    for call in CALLS[begin]:
        with pytest.raises(dml.InvalidArgumentError, match=re.escape(fix.replace("`", ""))):
            call()
