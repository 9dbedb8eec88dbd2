"""Lowering of OpenVINO's splits."""

from __future__ import annotations

import pytest

from dmlsplit import TensorDataType
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.openvino import lower_split, lower_variadic_split

F32 = TensorDataType.FLOAT32


def test_a_lowering_is_a_value_that_reads_well() -> None:
    lowering = lower_variadic_split((6, 2), -2, [2, -1, 0], F32)
    assert lowering.sizes == (2, 4, 0)
    assert lowering.output_shapes == ((2, 2), (4, 2), (0, 2))
    assert lowering.empty == (2,)
    assert str(lowering) == (
        "VariadicSplit-1 axis 0: FLOAT32[6,2] -> [2, 4, 0]\n"
        "  SPLIT axis 0: FLOAT32[6,2] -> FLOAT32[2,2], FLOAT32[4,2]\n"
        "  empty outputs, made without a dispatch: [2]"
    )
    assert lowering == lower_variadic_split((6, 2), 0, [2, 4, 0], F32)
    assert hash(lowering) == hash(lower_variadic_split((6, 2), 0, [2, 4, 0], F32))


def test_nothing_is_left_of_empty_data() -> None:
    lowering = lower_split((0, 4), 0, 2, F32)
    assert lowering.descriptor is None
    assert str(lowering).splitlines()[1] == "  nothing to dispatch: every output is empty"


def test_many_lengths_are_cut_in_messages() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        lower_variadic_split((5,), 0, [1] * 100_000, F32)
    assert len(str(error.value)) < 250
