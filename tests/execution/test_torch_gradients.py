"""Gradients of `dml.split`: first and second order, backward and forward, and with torch.func."""

from collections.abc import Callable
from typing import Any

import pytest

import dmlsplit as dml

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import dmlsplit.execution.torch  # noqa: E402  registers the operator

# Torch's own modules of derivatives.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning",
    "ignore:Attempted to insert a get_attr:UserWarning",
    "ignore:Dynamo does not know how to trace:UserWarning",
)


SPLITS: dict[str, Callable[[Any], Any]] = {
    "dml.split": lambda x: tuple(dml.split(x, (1, 0, 3), -2)),
    "operator": lambda x: tuple(torch.ops.dmlsplit.split(x, [1, 0, 3], -2)),
}


def peer(x: Any) -> tuple[Any, ...]:
    return tuple(piece.contiguous() for piece in x.split([1, 0, 3], -2))


def tensor(kind: str = "float64", **options: Any) -> Any:
    return torch.randn(2, 4, 2, dtype=getattr(torch, kind), **options)


def cubes(split: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that does not use all pieces, and whose derivatives differ from piece to piece."""
    return lambda x: sum((n * piece**3).sum() for n, piece in enumerate(split(x)))


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize("split", SPLITS)
def test_gradients_are_those_of_finite_differences(split: str, kind: str) -> None:
    x = tensor(kind, requires_grad=True)
    forward_checks = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(SPLITS[split], x, check_batched_grad=True, **forward_checks)
    assert torch.autograd.gradgradcheck(SPLITS[split], x, check_fwd_over_rev=True)


def dual(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    forward = torch.autograd.forward_ad

    def tangents(x: Any) -> Any:
        with forward.dual_level():
            dual_pieces = f(forward.make_dual(x, torch.ones_like(x)))
            return [forward.unpack_dual(dual_piece).tangent for dual_piece in dual_pieces]

    return tangents


func = torch.func
# Transforms of a split, and of a function of its pieces that has second derivatives.
TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "jvp": lambda split: lambda x: func.jvp(split, (x,), (torch.ones_like(x),)),
    "vjp": lambda split: lambda x: func.vjp(split, x)[1](tuple(p * 2 for p in split(x))),
    "jacfwd": func.jacfwd,
    "jacrev": func.jacrev,
    "vmap": func.vmap,
    "linearize": lambda split: lambda x: func.linearize(split, x)[1](torch.ones_like(x)),
    "functionalize": func.functionalize,
    "grad": lambda split: func.grad(cubes(split)),
    "hessian": lambda split: func.hessian(cubes(split)),
    "vmap_of_grad": lambda split: func.vmap(func.grad(cubes(split))),
    "jvp_of_grad": lambda split: (
        lambda x: func.jvp(func.grad(cubes(split)), (x,), (torch.ones_like(x),))
    ),
    "dual_level": dual,
}


def equal(result: Any, expected: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return torch.equal(result, expected)
    return len(result) == len(expected) and all(map(equal, result, expected))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_that_of_torchs_split(name: str, split: str) -> None:
    x = tensor()
    transform = TRANSFORMS[name]
    assert equal(transform(SPLITS[split])(x), transform(peer)(x))


def both(graph: Any, inputs: Any) -> Callable[..., Any]:
    """A backend that runs a graph unchanged, and after AOTAutograd has rewritten it."""
    compiled_graph = torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def run(*arguments: Any) -> Any:
        results = compiled_graph(*arguments)
        assert equal(results, graph(*arguments))
        return results

    return run


QUICK = ("jvp", "grad", "dual_level")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in TRANSFORMS]
)
def test_a_compiled_transform_is_that_of_torchs_split(name: str) -> None:
    """Tangents were once silently zeros. (Torch does not compile a split in `functionalize`.)"""
    check_compiled(name, "eager" if name == "functionalize" else both)


def check_compiled(name: str, backend: Any) -> None:
    x = tensor()
    transform = TRANSFORMS[name]
    for split in SPLITS.values():
        torch.compiler.reset()
        assert equal(torch.compile(transform(split), backend=backend)(x), transform(peer)(x))


@pytest.mark.slow
def test_inductor_keeps_the_tangents_of_a_split(inductor: str) -> None:
    check_compiled("jvp", inductor)


@pytest.mark.parametrize("axis", [0, -2])
def test_vmap_splits_every_example_and_keeps_the_batch_dimension(axis: int) -> None:
    batch = torch.rand(6, 2, 5)
    pieces = torch.func.vmap(lambda x: dml.split(x, (2, 4), axis), in_dims=2)(batch)
    for piece, expected in zip(pieces, batch.movedim(2, 0).split((2, 4), 1), strict=True):
        assert torch.equal(piece, expected)


def test_tensors_without_a_tangent_take_the_fast_path() -> None:
    forward, x = torch.autograd.forward_ad, tensor()
    with forward.dual_level():
        dual = forward.make_dual(x, torch.randn_like(x))
        # A tensor without a tangent takes the fast path, and one with a tangent is not written.
        assert forward.unpack_dual(dml.split(x, 2, 1)[0]).tangent is None
        with pytest.raises(dml.InvalidArgumentError, match="has a forward-mode tangent"):
            dml.split(torch.zeros_like(x), 1, 1, out=[dual])


def test_an_empty_list_of_sizes_gives_no_pieces() -> None:
    assert dml.split(torch.zeros(0, 3, requires_grad=True), ()) == []


def test_an_error_is_the_same_as_without_gradients() -> None:
    x = torch.ones(6, requires_grad=True)
    with pytest.raises(dml.InvalidArgumentError, match=r"sizes \[1, 2\] add up to 3") as error:
        dml.split(x, (1, 2))
    assert error.value.__context__ is None


def test_tensors_made_in_inference_mode_may_be_outputs() -> None:
    """Unlike `copy_`, also outside inference mode: no gradient can depend on the old values."""
    x, scale = torch.rand(3, 6), torch.rand(6, requires_grad=True)
    with torch.inference_mode():
        outs = [torch.rand(3, 2), torch.rand(3, 4)]
    for _ in range(3):  # a first call, and one that finds its copy
        x.uniform_()
        dml.split(x, (2, 4), 1, out=outs)
        assert torch.equal(torch.cat(outs, 1), x)
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        outs[0] * scale[:2]
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        outs[0].copy_(x[:, :2])
