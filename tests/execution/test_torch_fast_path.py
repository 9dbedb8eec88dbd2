"""Which tensors torch's own operator splits."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dmlsplit.execution.torch import _sizes_if_small  # noqa: E402


@pytest.mark.parametrize(
    ("shape", "axis", "count", "is_small"),
    [
        (((8 << 20) - 2,), 0, 2, True),
        ((8 << 20,), 0, 2, False),
        ((256, 6), 1, 2, True),
        ((257, 6), 1, 2, False),  # many short runs
        ((257, 2048), 1, 2, True),
    ],
)
def test_small_tensors_with_few_or_long_runs_take_torchs_operator(
    shape: tuple[int, ...], axis: int, count: int, is_small: bool
) -> None:
    sizes, _ = _sizes_if_small.__wrapped__(shape, torch.uint8, axis, count)
    assert bool(sizes) == is_small
