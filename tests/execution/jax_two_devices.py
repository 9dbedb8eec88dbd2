"""Splits of sharded arrays in a process with two CPU devices, for test_jax_transforms.py."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import dmlsplit as dml

SIZES = 1, 7


def array_of(columns: int) -> Any:
    """An array to split into 8 parts along its second dimension, of 128 bytes or 4 MiB."""
    return jnp.arange(4.0 * 8 * columns).reshape(4, 8, columns)


def split(array: Any) -> list[Any]:
    return dml.split(array, SIZES, 1)


def assert_pieces(pieces: Any, array: Any, spec: Any) -> None:
    for piece, expected in zip(pieces, np.split(np.asarray(array), [1], 1), strict=True):
        np.testing.assert_array_equal(np.asarray(piece), expected)
        assert piece.sharding.is_equivalent_to(NamedSharding(piece.sharding.mesh, spec), piece.ndim)


def squares(pieces: Any) -> Any:
    return (pieces[1] ** 2).sum()


def assert_gradient(function: Any, array: Any, first: int = 1) -> None:
    gradient = np.asarray(jax.jit(jax.grad(function))(array))
    np.testing.assert_array_equal(
        gradient, 2 * np.asarray(array) * (np.arange(8) >= first)[:, None]
    )


def partitioned(array: Any) -> None:
    """XLA splits on each device what the device has, and gathers nothing."""
    assert_pieces(jax.jit(split)(array), array, P("d"))
    assert_pieces(split(array), array, P("d"))
    assert_gradient(lambda array: squares(split(array)), array)
    assert "all-gather" not in jax.jit(split).lower(array).compile().as_text()


def typed(array: Any, spec: Any) -> None:
    """With an explicit mesh types have shardings, which agree for pieces and their tangents."""
    for function in (split, jax.jit(split)):
        pieces, tangents = jax.jvp(function, (array,), (array,))
        assert list(map(jax.typeof, pieces)) == list(map(jax.typeof, tangents))
        assert_pieces(tangents, array, spec)
        assert_gradient(lambda array, split=function: squares(split(array)), array)


def even(array: Any) -> None:
    """With an explicit mesh, pieces that devices share evenly stay on them; jnp.split does so."""
    for function in (lambda x: dml.split(x, (2, 6), 1), jax.jit(lambda x: dml.split(x, (2, 6), 1))):
        pieces, expected = function(array), jnp.split(array, [2], 1)
        assert list(map(jax.typeof, pieces)) == list(map(jax.typeof, expected))
        for piece, expected_piece in zip(pieces, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(piece), np.asarray(expected_piece))
            shapes = [
                [shard.data.shape for shard in x.addressable_shards]
                for x in (piece, expected_piece)
            ]
            assert shapes[0] == shapes[1]
    assert_gradient(lambda x: (dml.split(x, (2, 6), 1)[1] ** 2).sum(), array, first=2)


def local(mesh: Any, array: Any, is_checked: bool) -> None:
    """Inside shard_map, each device splits its own part, a large one in a callback."""
    mapped_split = jax.shard_map(
        split, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=is_checked
    )
    assert_pieces(jax.jit(mapped_split)(array), array, P("d"))
    assert_gradient(lambda array: squares(mapped_split(array)), array)
    text = jax.jit(mapped_split).lower(array).compile().as_text()
    assert "all-gather" not in text
    assert f"f32[2,8,{array.shape[2]}]" in text
    assert ("xla_buffer_python_cpu_callback" in text) == (array.nbytes > 1 << 20)

    def total(array: Any) -> Any:
        return jax.lax.psum(squares(split(array)), "d")

    summed = jax.shard_map(total, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=is_checked)
    assert_gradient(summed, array)
    _, tangent = jax.jvp(summed, (array,), (array,))
    np.testing.assert_allclose(tangent, 2 * (array[:, 1:] ** 2).sum(), rtol=1e-5)


def partly(array: Any) -> None:
    """Inside shard_map over one axis of a mesh, XLA partitions along the other."""
    mesh = jax.make_mesh((1, 2), ("one", "d"), axis_types=(AxisType.Auto,) * 2)
    mapped_split = jax.shard_map(split, mesh=mesh, in_specs=P(), out_specs=P(), axis_names={"one"})
    array = jax.device_put(array, NamedSharding(mesh, P("d")))
    assert_pieces(jax.jit(mapped_split)(array), array, P("d"))


assert len(jax.devices()) == 2
for columns in (1, 1 << 17):
    whole = array_of(columns)
    partly(whole)
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((2,), ("d",), axis_types=(kind,))
        sharded = jax.device_put(whole, NamedSharding(mesh, P("d")))
        partitioned(sharded)
        if kind is AxisType.Explicit:
            with jax.set_mesh(mesh), jax.enable_checks(True):
                typed(sharded, P("d"))
                along = jax.device_put(whole, NamedSharding(mesh, P(None, "d")))
                typed(along, P())
                even(along)
        for is_checked in (True, False):
            local(mesh, sharded, is_checked)
    on_the_other = jax.device_put(whole, jax.devices()[1])
    assert {piece.device for piece in jax.jit(split)(on_the_other)} == {jax.devices()[1]}
    assert {piece.device for piece in split(on_the_other)} == {jax.devices()[1]}
sys.stdout.write("done\n")
