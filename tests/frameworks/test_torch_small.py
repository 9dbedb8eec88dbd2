"""Which tensors torch's own operator splits."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dmlsplit.frameworks.torch import _small  # noqa: E402


@pytest.mark.parametrize(
    ("threads", "shape", "axis", "count", "is_small"),
    [
        (1, ((8 << 20) - 2,), 0, 2, True),
        (1, (8 << 20,), 0, 2, False),
        (2, ((2 << 20) - 2,), 0, 2, True),
        (2, (2 << 20,), 0, 2, False),
        (2, (6 << 20,), 0, 128, True),  # small outputs
        (2, (8 << 20,), 0, 256, False),
        (1, (256, 6), 1, 2, True),
        (1, (257, 6), 1, 2, False),  # many short runs
        (1, (257, 2048), 1, 2, True),
    ],
)
def test_torch_copies_itself_what_it_copies_as_fast(
    threads: int,
    shape: tuple[int, ...],
    axis: int,
    count: int,
    is_small: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DMLSPLIT_NUM_THREADS", str(threads))
    sizes, _ = _small.__wrapped__(shape, torch.uint8, axis, count)
    assert bool(sizes) == is_small
