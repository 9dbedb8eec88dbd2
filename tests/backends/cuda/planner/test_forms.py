"""The form in which the outputs of a strided split are copied."""

from typing import Any

import pytest

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import Assumptions
from dmlsplit.backends.cuda.planner.forms import Entry, Form, Nest, entries_of, form_of, nest_of
from dmlsplit.geometry import Loop, StridedCopy


def assumed(input_alignment: int = 16, output_alignment: int = 16) -> Assumptions:
    return Assumptions(input_alignment, output_alignment, H200.limits, 2, True)


def rows(unit: int, units: int, step: int, pitch: int = 1 << 20) -> Nest:
    """Nine packed rows of units, `step` units apart in the input."""
    return Nest(unit, (Loop(9, pitch, units * unit), Loop(units, step * unit, unit)))


@pytest.mark.parametrize(
    ("nest", "channels", "form"),
    [
        # Units that are a few units apart come from windows of the input, a vector at a time.
        (rows(1, 1024, 2), 1, Form(1, 16, 1, 2)),
        (rows(2, 1024, -4), 1, Form(2, 16, 1, -4)),
        (rows(1, 1024, 0), 1, Form(1, 16, 1, 0)),
        (rows(1, 1024, 1), 1, Form(1, 16, 1, 1)),
        (rows(1, 1024, 3), 3, Form(1, 16, 3, 3)),
        (rows(4, 1024, 2), 2, Form(4, 16, 2, 2)),
        (rows(8, 1024, 2), 2, Form(8, 16, 2, 2)),
        # If a window needs as many loads as the units do, units are loaded.
        (rows(8, 1024, 2), 1, Form(8, 16, 1, None)),
        (rows(4, 1024, 4), 1, Form(4, 16, 1, None)),
        (rows(16, 7, 5), 1, Form(16, 16, 1, None)),
        # Too far apart for registers.
        (rows(1, 1024, 5), 1, Form(1, 16, 1, None)),
        # Rows that are not whole vectors: long ones have edges, short ones narrower items.
        (rows(1, 1023, 2), 1, Form(1, 16, 1, 2)),
        (rows(2, 49, 1), 1, Form(2, 16, 1, 1)),
        (rows(1, 40, 2), 1, Form(1, 8, 1, None)),
        (rows(2, 47, 2), 1, Form(2, 2, 1, None)),
        (rows(8, 1001, 1), 1, Form(8, 8, 1, None)),
        # Units with gaps between them in the output as well.
        (Nest(4, (Loop(9, 4096, 4096), Loop(64, 4, 8))), 1, Form(4, 4, 1, None)),
    ],
)
def test_the_length_and_step_of_rows_select_item_size_and_window(
    nest: Nest, channels: int, form: Form
) -> None:
    assert form_of(nest, channels, assumed()) == form


def test_units_are_as_wide_as_all_offsets_allow() -> None:
    piece = StridedCopy((Loop(9, 1000, 1024), Loop(64, 16, 16)), 8, 16)
    assert nest_of(piece, assumed()).unit == 8
    assert nest_of(piece, assumed(4, 16)).unit == 4
    assert nest_of(piece, assumed(16, 2)).unit == 2
    assert [loop.size for loop in nest_of(piece, assumed()).loops] == [9, 64, 2]


# Rows of 1024 pixels of three bytes, and a byte of padding.
PIXELS = rows(unit=1, units=1024, step=3, pitch=3073)


def outputs_that_share_a_window(offsets: list[int], assumptions: Assumptions) -> list[Any]:
    """Outputs whose units begin at these offsets of the input, by the window that has them."""
    entries = entries_of(PIXELS, list(enumerate(offsets)), assumptions)
    return [entry.outputs for entry in entries]


def test_channels_of_pixels_share_their_windows() -> None:
    (entry,) = entries_of(PIXELS, [(0, 0), (1, 1), (2, 2)], assumed())
    assert entry == Entry(outputs=(0, 1, 2), offset=0, nest=PIXELS)


def test_channels_with_another_between_them_have_windows_of_their_own() -> None:
    assert outputs_that_share_a_window([0, 2, 3072, 3073], assumed()) == [(0,), (1,), (2, 3)]


def test_channels_of_outputs_at_odd_addresses_have_windows_of_their_own() -> None:
    """The vectors of such outputs begin at different pixels."""
    at_odd_addresses = assumed(output_alignment=1)
    assert outputs_that_share_a_window([0, 1, 2], at_odd_addresses) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("nest", "offset", "output_alignment", "alignment"),
    [
        (rows(1, 1024, 2, pitch=4096), 0, 16, 16),
        (rows(1, 1024, 2, pitch=4096), 4, 16, 4),
        (rows(1, 1024, 2, pitch=4099), 0, 16, 1),
        # An output at odd addresses shifts windows by the beginnings of its rows.
        (rows(1, 1024, 2, pitch=4096), 0, 1, 2),
        # If units go down in memory, the window begins at the last unit of an item.
        (rows(2, 1024, -2, pitch=4096), 0, 16, 4),
    ],
)
def test_a_window_has_the_alignment_that_all_its_addresses_share(
    nest: Nest, offset: int, output_alignment: int, alignment: int
) -> None:
    entry = Entry((0,), offset, nest)
    assert entry.window_alignment(assumed(16, output_alignment)) == alignment
