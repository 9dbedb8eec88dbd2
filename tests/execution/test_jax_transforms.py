"""`dml.split` under JAX's transforms: derivatives, batches, and several devices."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from tests.support.command import ran
from tests.support.jax_splits import lowered, own

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
from jax.experimental.jet import jet  # noqa: E402
from jax.scipy.sparse.linalg import bicgstab  # noqa: E402

Function = Any


@pytest.fixture(autouse=True, scope="module")
def _callbacks() -> Iterator[None]:
    """Splits are callbacks of the engine, also where slices of XLA would be used."""
    with lowered("callback"):
        yield


def loss(split: Function, sizes: tuple[int, ...], axis: int) -> Function:
    """A number that depends on each element of each piece in its own way."""

    def function(array: Any) -> Any:
        pieces = split(array, sizes, axis)
        return sum(((index + 1) * piece**3).sum() for index, piece in enumerate(pieces))

    return function


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_forward_and_reverse_derivatives_agree_with_finite_differences(kind: str) -> None:
    from jax.test_util import check_grads

    with jax.enable_x64(True):
        array = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)), kind)

        def function(array: Any) -> Any:
            left, middle, right = dml.split(array, (2, 0, 5), 1)
            return left**2, middle, jnp.sin(right)

        check_grads(function, (array,), order=2, modes=("fwd", "rev"), rtol=1e-4)
        check_grads(jax.jit(function), (array,), order=2, modes=("fwd", "rev"), rtol=1e-4)


def test_the_gradient_is_one_concatenation() -> None:
    """The gradient of slices makes zeros and adds them."""
    text = str(jax.make_jaxpr(jax.grad(loss(dml.split, (1, 2, 3), 0)))(jnp.arange(6.0)))
    assert text.count("= concatenate[") == 1
    assert "= pad[" not in text
    assert "add_any" not in text


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float8_e4m3fn", "float32"])
def test_a_piece_that_is_not_used_has_no_gradient(kind: str) -> None:
    array = jnp.asarray([1, 2, 0.5, -1], kind)
    gradients = [
        jax.jit(jax.grad(lambda x, split=split: split(x, (1, 3))[1].astype("f4").sum()))(array)
        for split in (dml.split, own)
    ]
    assert {str(gradient.dtype) for gradient in gradients} == {kind}
    assert len({np.asarray(gradient).tobytes() for gradient in gradients}) == 1


def test_integers_have_no_tangents() -> None:
    zero = np.zeros(4, jax.dtypes.float0)
    pieces, tangents = jax.jvp(lambda x: dml.split(x, (1, 3)), (jnp.arange(4),), (zero,))
    assert [piece.tolist() for piece in pieces] == [[0], [1, 2, 3]]
    assert {tangent.dtype for tangent in tangents} == {jax.dtypes.float0}


@pytest.mark.parametrize(
    "transform",
    [
        jax.hessian,
        lambda f: jax.grad(jax.checkpoint(f)),
        lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x + 1,)),
        lambda f: lambda x: jax.linearize(f, x)[1](x + 1),
        lambda f: jax.vmap(jax.grad(f)),
        lambda f: jax.grad(lambda x: jax.vmap(f)(x).sum()),
        lambda f: jax.vmap(jax.vmap(f)),
    ],
    ids="hessian checkpoint jvp_of_grad linearize vmap_of_grad grad_of_vmap vmap_of_vmap".split(),
)
def test_nested_transforms_agree_with_jax(transform: Function) -> None:
    array = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 8)).astype("f4"))
    results, expected_results = (
        jax.jit(transform(loss(split, (1, 2, 5), -1)))(array) for split in (dml.split, own)
    )
    for result, expected in zip(
        jax.tree.leaves(results), jax.tree.leaves(expected_results), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("out", [0, 1])
def test_vmap_makes_one_split_of_a_whole_batch(axis: int, batch: int, out: int) -> None:
    array = jnp.arange(6 * 6 * 6.0).reshape(6, 6, 6)

    def mapped_split(split: Function) -> Function:
        return jax.vmap(lambda x: split(x, (1, 5), axis), in_axes=batch, out_axes=out)

    for piece, expected in zip(
        mapped_split(dml.split)(array), mapped_split(own)(array), strict=True
    ):
        np.testing.assert_array_equal(piece, expected)
    assert str(jax.make_jaxpr(mapped_split(dml.split))(array)).count("dml_split[") == 1


def test_an_array_that_is_not_batched_is_split_under_vmap() -> None:
    constant = jnp.arange(4.0)
    products = jax.vmap(lambda x, y: x * dml.split(y, (1, 3))[1], (0, None))(
        jnp.arange(2.0), constant
    )
    assert products.tolist() == [[0, 0, 0], [1, 2, 3]]


def swapped(split: Function) -> Function:
    """A linear function that is not symmetric, so that a wrong transpose has another gradient."""
    return lambda x: x + jnp.concatenate(split(x, (2, 4))[::-1]) * jnp.arange(6.0) / 10


def squared(split: Function) -> Function:
    function = jax.custom_jvp(lambda x: x**2)
    function.defjvps(lambda tangent, _, x: jnp.concatenate(split(2 * x * tangent, (2, 4))))
    return function


@pytest.mark.parametrize(
    "function",
    [
        lambda split, x: jax.grad(lambda b: bicgstab(swapped(split), b)[0].sum())(x),
        lambda split, x: jax.grad(lambda x: (squared(split)(x) * x).sum())(x),
        lambda split, x: jax.linear_transpose(swapped(split), x)(x),
        lambda split, x: jet(lambda x: split(jnp.sin(x), (2, 4)), (x,), ((x, x),)),
        lambda split, x: jax.vmap(lambda x: split(x, (2, 4)), spmd_axis_name="d")(jnp.ones((2, 6))),
        lambda split, x: jax.pmap(lambda x: split(x, (2, 4)))(x[None]),
        lambda split, x: jax.disable_jit()(split)(x, (2, 4)),
        lambda split, x: jax.core.eval_jaxpr(jax.make_jaxpr(swapped(split))(x).jaxpr, [], x),
    ],
    ids="solver custom_jvp linear_transpose jet spmd_vmap pmap disable_jit jaxpr".split(),
)
def test_transforms_that_need_the_rules_of_a_primitive_agree_with_jax(function: Function) -> None:
    results, expected_results = (
        jax.tree.leaves(function(split_function, jnp.arange(6.0)))
        for split_function in (dml.split, own)
    )
    for result, expected in zip(results, expected_results, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_sharded_arrays_are_split_on_two_devices() -> None:
    """The test runs in a process of its own, because JAX counts the devices when it starts."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    cases = Path(__file__).with_name("jax_two_devices.py")
    environment = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    process = ran(sys.executable, "-W", "error", str(cases), env=environment)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "done\n"
