"""Splits of array_api_strict arrays, which refuse everything that is not in the array API."""

import pytest

import dmlsplit as dml
from tests.peers.cuts import JAX, Cut
from tests.support.each import each

xp = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
INFO = xp.__array_namespace_info__()
KINDS = [(device, kind) for device in INFO.devices() for kind in INFO.dtypes(device=device)]


@pytest.mark.parametrize("cut", [cut for cut in JAX if isinstance(cut.at, int)])
@each(place=KINDS)
def test_pieces_make_up_the_array(place: tuple[object, str], cut: Cut) -> None:
    device, kind = place
    size = 1
    for n in cut.shape:
        size *= n
    dtype = INFO.dtypes(device=device)[kind]
    array = xp.reshape(xp.astype(xp.arange(size, dtype=xp.int32, device=device), dtype), cut.shape)
    axis = cut.axis % array.ndim
    least, more = divmod(cut.shape[axis], cut.at)
    sizes = [least + (at < more) for at in range(cut.at)]
    pieces = dml.split(array, sizes, cut.axis)
    assert [piece.shape[axis] for piece in pieces] == sizes
    assert {(type(piece), piece.dtype, piece.device) for piece in pieces} == {
        (type(array), dtype, device)
    }
    joined = xp.concat(pieces, axis=axis)
    assert joined.shape == array.shape
    assert bool(xp.all(joined == array))
