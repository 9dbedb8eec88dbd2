"""Gradients of `dml.split`: first and second order, backward and forward, and with torch.func."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from tests.support.gpu_arrays import operator

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
# Torch's own modules of derivatives.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning",
    "ignore:Attempted to insert a get_attr:UserWarning",
    "ignore:Dynamo does not know how to trace:UserWarning",
)


def pieces(x: Any) -> tuple[Any, ...]:
    return tuple(dml.split(x, (1, 0, 3, 2), 1))


def cubes(split: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that does not use all pieces, and whose derivatives differ from piece to piece."""
    return lambda x: sum((n * piece**3).sum() for n, piece in enumerate(split(x)))


@pytest.fixture
def x() -> Any:
    return torch.randn(3, 6, 2, dtype=torch.float64)


def operator_pieces(x: Any) -> tuple[Any, ...]:
    import dmlsplit.frameworks.torch  # noqa: F401  registers the operator

    return tuple(torch.ops.dmlsplit.split(x, [1, 0, 3, 2], 1))


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize("split", [pieces, operator_pieces])
def test_gradients_are_those_of_finite_differences(split: Callable[[Any], Any], kind: str) -> None:
    x = torch.randn(3, 6, 2, dtype=getattr(torch, kind), requires_grad=True)
    every = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(split, x, check_batched_grad=True, **every)
    assert torch.autograd.gradgradcheck(split, x, check_fwd_over_rev=True)


def dual(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    forward = torch.autograd.forward_ad

    def tangents(x: Any) -> Any:
        with forward.dual_level():
            found = f(forward.make_dual(x, torch.ones_like(x)))
            return [forward.unpack_dual(one).tangent for one in found]

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
SPLITS: dict[str, Callable[[Any], Any]] = {
    "dml.split": lambda x: tuple(dml.split(x, (1, 0, 3), -1)),
    "operator": lambda x: tuple(torch.ops.dmlsplit.split(x, [1, 0, 3], -1)),
}


def peer(x: Any) -> tuple[Any, ...]:
    return tuple(piece.contiguous() for piece in x.split([1, 0, 3], -1))


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return len(one) == len(other) and all(map(equal, one, other))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_that_of_torchs_split(name: str, split: str) -> None:
    import dmlsplit.frameworks.torch  # noqa: F401  registers the operator

    x = torch.randn(2, 4, dtype=torch.float64)
    transform = TRANSFORMS[name]
    assert equal(transform(SPLITS[split])(x), transform(peer)(x))


def both(graph: Any, inputs: Any) -> Callable[..., Any]:
    """A backend that runs a graph unchanged, and after AOTAutograd has rewritten it."""
    rewritten = torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def run(*arguments: Any) -> Any:
        found = rewritten(*arguments)
        assert equal(found, graph(*arguments))
        return found

    return run


QUICK = ("jvp", "grad", "dual_level")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in TRANSFORMS]
)
def test_a_compiled_transform_is_that_of_torchs_split(name: str) -> None:
    """Tangents were once silently zeros. (Torch does not compile a split in `functionalize`.)"""
    check_compiled(name, "eager" if name == "functionalize" else both)


def check_compiled(name: str, backend: Any) -> None:
    import dmlsplit.frameworks.torch  # noqa: F401  registers the operator

    x = torch.randn(2, 4, dtype=torch.float64)
    transform = TRANSFORMS[name]
    for split in SPLITS.values():
        torch.compiler.reset()
        assert equal(torch.compile(transform(split), backend=backend)(x), transform(peer)(x))


@pytest.mark.slow
def test_inductor_keeps_the_tangents_of_a_split(inductor: str) -> None:
    check_compiled("jvp", inductor)


@pytest.mark.parametrize("axis", [0, -2])
def test_vmap_leaves_the_batch_whole(axis: int) -> None:
    batch = torch.rand(6, 2, 5)
    found = torch.func.vmap(lambda x: dml.split(x, (2, 4), axis), in_dims=2)(batch)
    for piece, wanted in zip(found, batch.movedim(2, 0).split((2, 4), 1), strict=True):
        assert torch.equal(piece, wanted)


def test_an_operator_has_no_batches() -> None:
    with pytest.raises(dml.InvalidArgumentError, match="inside a transform"):
        torch.func.vmap(operator((6,), (2, 4), 0, "cpu"))(torch.ones(2, 6))


def test_tangents_follow_the_pieces(x: Any) -> None:
    forward = torch.autograd.forward_ad
    tangent = torch.randn_like(x)
    with forward.dual_level():
        dual = forward.make_dual(x, tangent)
        found = [forward.unpack_dual(piece) for piece in dml.split(dual, 3, 1)]
        # A tensor without a tangent takes the fast path, and one with a tangent is not written.
        assert forward.unpack_dual(dml.split(x, 3, 1)[0]).tangent is None
        with pytest.raises(dml.InvalidArgumentError, match="has a forward-mode tangent"):
            dml.split(torch.zeros_like(x), 1, 1, out=[dual])
    assert torch.equal(torch.cat([piece.primal for piece in found], 1), x)
    assert torch.equal(torch.cat([piece.tangent for piece in found], 1), tangent)


def test_no_pieces_at_all() -> None:
    assert dml.split(torch.zeros(0, 3, requires_grad=True), ()) == []


def test_parameters_of_a_module_are_trained() -> None:
    layer = torch.nn.Linear(4, 6)
    q, k, v = dml.split(layer(torch.ones(2, 4)), 3, 1)
    wanted = layer(torch.ones(2, 4)).split(2, 1)
    (found,) = torch.autograd.grad((q * k + v).sum(), layer.weight)
    (other,) = torch.autograd.grad((wanted[0] * wanted[1] + wanted[2]).sum(), layer.weight)
    assert torch.equal(found, other)
    for piece, weight in zip(dml.split(layer.weight, 3), layer.weight.split(2), strict=True):
        assert torch.equal(piece, weight)
        assert piece.requires_grad
        assert piece.is_contiguous()


def test_an_error_is_the_same_as_without_gradients() -> None:
    x = torch.ones(6, requires_grad=True)
    with pytest.raises(dml.InvalidArgumentError, match=r"sizes \[1, 2\] add up to 3") as raised:
        dml.split(x, (1, 2))
    assert raised.value.__context__ is None


FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64"]


@st.composite
def strided(draw: st.DrawFn) -> tuple[Any, int, list[int]]:
    """A tensor with any strides that torch allows, with an axis and sizes."""
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    dtype = getattr(torch, draw(st.sampled_from(FLOATS)))
    steps = [draw(st.integers(1, 3)) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    wide = [n * step + 1 for n, step in zip(shape, steps, strict=True)]
    x = torch.randint(0, 100, [wide[at] for at in order]).to(dtype)
    x = x.permute([order.index(at) for at in range(len(shape))])
    x = x[tuple(slice(1, 1 + n * s, s) for n, s in zip(shape, steps, strict=True))]
    if draw(st.booleans()):  # Expanded: a dimension of stride 0.
        x = x.unsqueeze(0).expand(3, *shape)
    axis = draw(st.integers(-x.dim(), x.dim() - 1))
    cuts = draw(st.lists(st.integers(0, x.shape[axis]), max_size=4).map(sorted))
    ends = [*cuts, x.shape[axis]]
    return x, axis, [end - start for start, end in zip([0, *cuts], ends, strict=True)]


def raw(x: Any) -> list[int]:
    whole = x.clone(memory_format=torch.contiguous_format).untyped_storage()
    return list(whole.tolist())


@given(strided(), st.data())
@settings(max_examples=60)
def test_gradients_are_those_of_torch(
    given_: tuple[Any, int, list[int]], data: st.DataObject
) -> None:
    x, axis, sizes = given_
    used = data.draw(st.sets(st.sampled_from(range(len(sizes))), min_size=1))
    weights = [torch.rand(piece.shape).to(x.dtype) for piece in torch.split(x, sizes, axis)]

    def gradient(split: Callable[..., Any]) -> Any:
        leaf = x.detach().requires_grad_()
        got = split(leaf, sizes, axis)
        # Passed on unchanged, because sums of packed pieces and of views round differently.
        return torch.autograd.grad([got[at] for at in used], leaf, [weights[at] for at in used])[0]

    assert raw(gradient(dml.split)) == raw(gradient(torch.split))
