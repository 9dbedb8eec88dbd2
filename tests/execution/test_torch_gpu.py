"""PyTorch's tensors on a GPU: gradients, graphs, streams and writes."""

from typing import Any

import pytest

import dmlsplit as dml
from tests.support.gpu_arrays import compiled_split

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")]


@pytest.fixture
def torch() -> Any:
    """PyTorch with a CUDA device; a test that takes it is skipped without one."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return torch


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("layout", ["packed", "channels_last", "expanded", "step"])
def test_pieces_and_gradients_are_those_of_torch(torch: Any, kind: str, layout: str) -> None:
    dtype = getattr(torch, kind)
    x = torch.randint(-9, 9, (4, 90, 14, 6), device="cuda").to(dtype)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    elif layout == "expanded":
        x = x[:1].expand(4, 90, 14, 6)
    elif layout == "step":
        x = x[:, :, 1::2]
    weights = [torch.randint(-9, 9, p.shape, device="cuda").to(dtype) for p in x.split([7, 83], 1)]

    def gradient(split: Any) -> Any:
        leaf = x.detach().requires_grad_()
        pieces = split(leaf, [7, 83], 1)
        for piece, expected in zip(pieces, x.split([7, 83], 1), strict=True):
            assert torch.equal(piece, expected)
        (gradient_found,) = torch.autograd.grad(pieces, leaf, weights)
        return gradient_found

    assert torch.equal(gradient(dml.split), gradient(torch.split))


def test_gradients_of_a_split_on_another_stream_are_exact(torch: Any) -> None:
    x = torch.ones((4096, 3000), device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        left, right = dml.split(x, 2, 1)
        loss = (left.square() + 3 * right).sum()
    torch.cuda.current_stream().wait_stream(stream)
    loss.backward()
    assert torch.equal(
        x.grad, torch.tensor([2.0, 3.0], device="cuda").repeat_interleave(1500).expand_as(x)
    )


@pytest.mark.parametrize("is_dispatch", [False, True])
def test_a_freed_input_is_not_reused_while_another_stream_reads_its_memory(
    torch: Any, is_dispatch: bool
) -> None:
    """The input is dropped while the split of it is still queued."""
    count = 1 << 24
    op, stream = compiled_split((count,), (count,), axis=0), torch.cuda.Stream()
    out = torch.zeros(count, device="cuda")
    source = torch.full((count,), 6.0, device="cuda")
    busy = torch.rand(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(50):
            busy = busy @ busy.clamp(max=1e-3)
    if is_dispatch:
        op.dispatch(source, [out], stream=stream)
    else:
        (out,) = op(source, stream=stream)
    del source
    second_tensor = torch.full((count,), 2.0, device="cuda")
    torch.cuda.synchronize()
    assert float(out.min()) == float(out.max()) == 6
    assert float(second_tensor.min()) == float(second_tensor.max()) == 2


def test_fsdp2s_copy_out_can_use_the_split(torch: Any) -> None:
    import torch.distributed.fsdp

    def copy_out(gathered: Any, sizes: Any, dim: int = 0, *, out: Any) -> None:
        dml.split(gathered, sizes, dim, out=out)

    x = torch.arange(8 * 4096, device="cuda").bfloat16().reshape(8, 4096)
    outs = [torch.zeros(8, 32, device="cuda", dtype=x.dtype) for _ in range(128)]
    library = torch.library.Library("fsdp", "IMPL")
    library.impl("split_with_sizes_copy", copy_out, "CUDA", allow_override=True)
    torch.ops.fsdp.split_with_sizes_copy(x, [32] * 128, dim=1, out=outs)
    library._destroy()
    assert torch.equal(torch.cat(outs, 1), x)
    assert outs[0]._version > 0
