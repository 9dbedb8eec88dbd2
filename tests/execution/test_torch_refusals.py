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


def emptied() -> Any:
    tensor = torch.arange(6.0)
    tensor.untyped_storage().resize_(0)
    return tensor


def nested(**options: Any) -> Any:
    return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], **options)


# Torch itself refuses these in most transforms.
WITHOUT_ELEMENTS = {
    "nested": nested,
    "nested_grad": lambda: nested(requires_grad=True),
    "jagged": lambda: nested(layout=torch.jagged),
    "uninitialized": torch.nn.parameter.UninitializedParameter,
    "uninitialized_buffer": torch.nn.parameter.UninitializedBuffer,
    "emptied": emptied,
    "emptied_grad": lambda: torch.nn.Parameter(emptied()),
}


def splits(*names: str) -> list[Callable[[], Any]]:
    tensors = REFUSED | WITHOUT_ELEMENTS
    return [lambda name=name: dml.split(tensors[name](), 2) for name in names]


# The first words of a row, and calls that are refused.
CALLS = {
    "a subclass": splits("subclass"),
    "a wrapper": splits("wrapper"),
    "a sparse": splits("sparse"),
    "a quantized": splits("quantized"),
    "a tensor of quint4x2": splits("quint4x2"),
    "a nested": splits("nested", "nested_grad", "jagged"),
    "an `Uninitialized": splits("uninitialized", "uninitialized_buffer"),
    "a tensor whose storage": splits("emptied", "emptied_grad"),
    "any tensor in `torch.jit": [traced],
}
# test_torch_distributed.py has the errors of DTensors; other devices are not available here.
ELSEWHERE = {"a `DTensor`", "a tensor on"}


def test_every_row_of_the_pages_table_has_a_case() -> None:
    rest = [row for row in ROWS if not row.startswith(tuple({*CALLS, *ELSEWHERE}))]
    assert ROWS
    assert not rest


@pytest.mark.parametrize("begin", CALLS)
def test_a_refusal_has_the_fix_of_the_page(begin: str) -> None:
    (fix,) = (fix for row, fix in ROWS.items() if row.startswith(begin))
    # Where the page has dots, the message has a number of bytes.
    expected = re.escape(fix.replace("`", "")).replace(r"\.\.\.", r"\d+")
    for call in CALLS[begin]:
        with pytest.raises(dml.InvalidArgumentError, match=expected):
            call()


def test_a_tensor_is_split_once_the_fix_in_the_message_is_applied() -> None:
    parts = [dml.split(part, 2, 1) for part in nested().unbind()]
    assert [piece.shape for piece in parts[1]] == [(3, 2), (3, 2)]
    lazy = torch.nn.LazyLinear(4)
    lazy(torch.ones(1, 3))
    assert dml.split(lazy.weight, 2)[1].shape == (2, 3)
    tensor = emptied()
    tensor.untyped_storage().resize_(24)
    assert dml.split(tensor.fill_(1), 2)[1].tolist() == [1, 1, 1]


def test_a_meta_tensor_is_not_split_into_quantized_ones() -> None:
    """Torch cannot trace these, so the split reaches the kernel, which must not call itself."""
    outs = [torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8) for _ in range(2)]
    with pytest.raises(dml.InvalidArgumentError, match=r"on meta; .* a tensor that has memory"):
        dml.split(torch.empty(4, device="meta"), 2, out=outs)


def test_torchscript_names_the_operator() -> None:
    with pytest.raises(torch.jit.frontend.NotSupportedError, match=r"torch\.ops\.dmlsplit\.split"):
        torch.jit.script(_scripted_wrongly)


def _scripted_wrongly(x: torch.Tensor) -> list[torch.Tensor]:
    return dml.split(x, (2, 4))


def operator(x: torch.Tensor) -> list[torch.Tensor]:
    return torch.ops.dmlsplit.split(x, [2, 4], 0)


@pytest.mark.parametrize(
    "recorder",
    [
        torch.jit.script,
        torch.fx.symbolic_trace,
        lambda f: torch.jit.trace(lambda x: tuple(f(x)), torch.zeros(6)),
    ],
)
def test_scripts_and_traces_of_torch_record_the_operator(recorder: Callable[..., Any]) -> None:
    import dmlsplit.execution.torch  # noqa: F401  registers it

    pieces = recorder(operator)(torch.arange(6))
    assert [piece.tolist() for piece in pieces] == [[0, 1], [2, 3, 4, 5]]


class Halves(torch.nn.Module):  # type: ignore[misc]
    """A model with weights, which require gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(dml.split(self.layer(x), 2, dim=1))


def test_a_trace_of_a_model_with_weights_refuses_its_splits() -> None:
    with pytest.raises(dml.InvalidArgumentError, match=r"torch\.jit\.trace"):
        torch.jit.trace(Halves(), (torch.zeros(2, 4),))


@pytest.mark.parametrize("count", [0, -2, 2**70])
def test_a_tensor_without_memory_has_a_number_of_pieces(count: int) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=f"count is {count}"):
        dml.split(torch.zeros(0, device="meta"), count)
