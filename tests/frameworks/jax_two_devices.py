"""Splits of sharded arrays in a process with two CPU devices, for test_jax_transforms.py."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import dmlsplit as dml

X = jnp.arange(32.0).reshape(4, 8)
SIZES = 1, 7


def split(array: Any) -> list[Any]:
    return dml.split(array, SIZES, 1)


def assert_pieces(found: Any, spec: Any) -> None:
    for one, two in zip(found, np.split(np.asarray(X), [1], 1), strict=True):
        np.testing.assert_array_equal(np.asarray(one), two)
        assert one.sharding.is_equivalent_to(NamedSharding(one.sharding.mesh, spec), one.ndim)


def squares(pieces: Any) -> Any:
    return (pieces[1] ** 2).sum()


def assert_gradient(function: Any, array: Any) -> None:
    found = jax.jit(jax.grad(function))(array)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(2 * X.at[:, 0].set(0)))


def gathered(array: Any) -> None:
    """XLA cannot partition a callback, so it gathers the array and each device has all pieces."""
    assert_pieces(jax.jit(split)(array), P())
    assert_pieces(split(array), P())
    assert_gradient(lambda array: squares(split(array)), array)
    assert "all-gather" in jax.jit(split).lower(array).compile().as_text()


def typed(array: Any) -> None:
    """With an explicit mesh types have shardings, which agree for pieces and their tangents."""
    for function in (split, jax.jit(split)):
        pieces, tangents = jax.jvp(function, (array,), (array,))
        assert list(map(jax.typeof, pieces)) == list(map(jax.typeof, tangents))
        assert_pieces(tangents, P())
        assert_gradient(lambda array, split=function: squares(split(array)), array)


def local(mesh: Any, array: Any, is_checked: bool) -> None:
    """Inside shard_map, each device splits its own part."""
    mapped = jax.shard_map(
        split, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=is_checked
    )
    assert_pieces(jax.jit(mapped)(array), P("d"))
    assert_gradient(lambda array: squares(mapped(array)), array)
    text = jax.jit(mapped).lower(array).compile().as_text()
    assert "all-gather" not in text
    assert "f32[2,8]" in text

    def total(array: Any) -> Any:
        return jax.lax.psum(squares(split(array)), "d")

    summed = jax.shard_map(total, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=is_checked)
    assert_gradient(summed, array)
    _, tangent = jax.jvp(summed, (array,), (array,))
    assert float(tangent) == float(2 * (X[:, 1:] ** 2).sum())


assert len(jax.devices()) == 2
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(kind,))
    sharded = jax.device_put(X, NamedSharding(mesh, P("d")))
    gathered(sharded)
    if kind is AxisType.Explicit:
        with jax.set_mesh(mesh), jax.enable_checks(True):
            typed(sharded)
            typed(jax.device_put(X, NamedSharding(mesh, P(None, "d"))))
    for is_checked in (True, False):
        local(mesh, sharded, is_checked)
on_the_other = jax.device_put(X, jax.devices()[1])
assert {one.device for one in jax.jit(split)(on_the_other)} == {jax.devices()[1]}
assert {one.device for one in split(on_the_other)} == {jax.devices()[1]}
sys.stdout.write("done\n")
