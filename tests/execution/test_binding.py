"""The binding table: what it accepts, and every rule that it reports."""

import re
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.execution.binding import BindingTable, BufferBinding
from tests.support.arrays import ramp

# The operator of most tests splits six rows of two floats, 48 bytes, into 2, 1 and 3 rows.
ROWS = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))
DESC = dml.SplitOperatorDesc.from_sizes(ROWS, axis=2, sizes=(2, 1, 3))
TABLE = BindingTable(DESC, "cpu")
FOREIGN_ORDER = ">" if sys.byteorder == "little" else "<"


def outputs() -> list[Any]:
    return [np.zeros(tensor.sizes, np.float32) for tensor in DESC.output_tensors]


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def reported(table: BindingTable, source: Any, given_outputs: Any) -> list[str]:
    """What binding reports, each as "RULE place: found | allowed"."""
    with pytest.raises(dml.InvalidArgumentError) as error:
        table.bind(source, given_outputs)
    report = error.value.report
    assert report is not None
    assert report.subject == f"binding of {table.desc}"
    assert str(error.value) == str(report)
    return [
        f"{v.rule.id.removeprefix('DML-')} {v.place}: {v.found} | {v.allowed}"
        for v in report.violations
    ]


def test_arrays_are_bound_as_whole_buffers() -> None:
    source, outs = ramp(1, 1, 6, 2), tuple(outputs())
    assert (TABLE.desc, TABLE.device) == (DESC, "cpu")
    bound_input, owners, addresses = TABLE.bind(source, outs)
    assert bound_input.owner is source
    assert bound_input.address == address(source)
    assert bound_input.span == (address(source), address(source) + 48)
    assert [id(owner) for owner in owners] == [id(out) for out in outs]
    assert addresses == [address(out) for out in outs]


def test_bind_input_binds_the_input_alone() -> None:
    source = ramp(1, 1, 6, 2)
    bound_input = TABLE.bind_input(source)
    assert bound_input.owner is source
    assert bound_input.address == address(source)


def test_a_buffer_is_bound_from_its_offset_to_the_size_of_the_tensor() -> None:
    store = np.zeros(256, np.uint8)
    bound_input, *_ = TABLE.bind(BufferBinding(store, 32, 64), outputs())
    assert TABLE.bind_input(BufferBinding(store, 32, 64))[1:] == bound_input[1:]
    assert bound_input.address == address(store) + 32
    assert bound_input.span == (address(store) + 32, address(store) + 80)
    assert bound_input.owner is store
    assert (bound_input.type, bound_input.read_only) == ("|u1", False)


def test_strides_of_dimensions_of_one_do_not_matter() -> None:
    strided = np.lib.stride_tricks.as_strided(ramp(12), (1, 1, 6, 2), (4, 400, 8, 4))
    bound_input, *_ = TABLE.bind(strided, outputs())
    assert bound_input.span == (bound_input.address, bound_input.address + 48)


@pytest.mark.parametrize("given_outputs", [np.zeros(3), "abc", None, iter([])])
def test_outputs_that_are_not_a_list_are_refused(given_outputs: Any) -> None:
    kind = type(given_outputs).__name__
    message = f"^outputs has the type {kind}; it must be a list with one array per output$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        TABLE.bind(ramp(1, 1, 6, 2), given_outputs)


INPUT = ramp(1, 1, 6, 2)
READ_ONLY_OUTPUT = np.zeros((1, 1, 2, 2), np.float32)
READ_ONLY_OUTPUT.flags.writeable = False
BUFFER = np.zeros(256, np.uint8)
NOT_AN_ARRAY = (
    "InputTensor has the type list; it must be an array of NumPy, CuPy or any library with DLPack"
)
INPUTS: dict[str, tuple[Any, list[str]]] = {
    "a list": ([1, 2], [f"BIND-KIND InputTensor: {NOT_AN_ARRAY} | an array on cpu"]),
    "data type": (
        INPUT.view("i4"),
        ["ARRAY-DATA-TYPE InputTensor.DataType: int32 | float32 (FLOAT32)"],
    ),
    "data type of another size": (
        INPUT.astype("f2"),
        ["ARRAY-DATA-TYPE InputTensor.DataType: float16 | float32 (FLOAT32)"],
    ),
    "byte order": (
        INPUT.astype(f"{FOREIGN_ORDER}f4"),
        [f"ARRAY-DATA-TYPE InputTensor.DataType: {FOREIGN_ORDER}f4 | float32 (FLOAT32)"],
    ),
    "shape": (ramp(6, 2), ["ARRAY-SHAPE InputTensor.Sizes: [6, 2] | [1, 1, 6, 2]"]),
    "strides": (
        ramp(1, 1, 2, 6).transpose(0, 1, 3, 2),
        ["ARRAY-STRIDES InputTensor.Strides: [48, 48, 4, 24] bytes | [48, 48, 8, 4] bytes"],
    ),
    "type and strides": (
        INPUT.view("i4")[:, :, ::-1],
        [
            "ARRAY-DATA-TYPE InputTensor.DataType: int32 | float32 (FLOAT32)",
            "ARRAY-STRIDES InputTensor.Strides: [48, 48, -8, 4] bytes | [48, 48, 8, 4] bytes",
        ],
    ),
    "offset": (
        BufferBinding(BUFFER, 8),
        ["BIND-OFFSET-ALIGNMENT InputTensor.Offset: 8 | a multiple of 16"],
    ),
    "negative offset": (
        BufferBinding(BUFFER, -16, 48),
        ["BIND-RANGE InputTensor.Offset: 48 bytes from byte -16 | inside the buffer's 256 bytes"],
    ),
    "after the buffer": (
        BufferBinding(BUFFER, 224, 48),
        [
            "BIND-RANGE InputTensor.SizeInBytes: 48 bytes from byte 224 | inside the buffer's "
            "256 bytes"
        ],
    ),
    "from after the buffer": (
        BufferBinding(BUFFER, 272),
        ["BIND-RANGE InputTensor.Offset: 0 bytes from byte 272 | inside the buffer's 256 bytes"],
    ),
    "too small after the buffer": (
        BufferBinding(BUFFER, 272, 16),
        [
            "BIND-RANGE InputTensor.Offset: 16 bytes from byte 272 | inside the buffer's 256 bytes",
            "BIND-SIZE InputTensor.SizeInBytes: 16 | at least 48",
        ],
    ),
    "from the end of the buffer": (
        BufferBinding(BUFFER, 256),
        ["BIND-SIZE InputTensor.SizeInBytes: 0 | at least 48"],
    ),
    "far after the buffer": (
        BufferBinding(BUFFER, 16**5000),
        [
            "BIND-RANGE InputTensor.Offset: 0 bytes from byte about 2^20001 | inside the buffer's "
            "256 bytes"
        ],
    ),
    "too small": (
        BufferBinding(BUFFER, 0, 44),
        ["BIND-SIZE InputTensor.SizeInBytes: 44 | at least 48"],
    ),
    "buffer too small": (
        BufferBinding(BUFFER[:44]),
        ["BIND-SIZE InputTensor.SizeInBytes: 44 | at least 48"],
    ),
    "strided buffer": (
        BufferBinding(BUFFER[::2]),
        ["BIND-KIND InputTensor.Buffer: a strided array | a contiguous array"],
    ),
    "not a buffer": (
        BufferBinding([1]),
        [f"BIND-KIND InputTensor: {NOT_AN_ARRAY} | an array on cpu"],
    ),
}
NOT_ARRAYS = ["a list", "not a buffer"]


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_that_breaks_a_rule_is_refused(name: str) -> None:
    source, expected_violations = INPUTS[name]
    assert reported(TABLE, source, outputs()) == expected_violations


@pytest.mark.parametrize("name", [name for name in INPUTS if name not in NOT_ARRAYS])
def test_bind_input_reports_what_bind_reports(name: str) -> None:
    source, expected_violations = INPUTS[name]
    with pytest.raises(dml.InvalidArgumentError) as error:
        TABLE.bind_input(source)
    report = error.value.report
    assert report is not None
    assert [f"DML-{line.split()[0]}" for line in expected_violations] == [
        violation.rule.id for violation in report.violations
    ]


@pytest.mark.parametrize("name", NOT_ARRAYS)
def test_a_value_that_is_not_an_array_needs_no_report_unless_it_is_bound(name: str) -> None:
    source, _ = INPUTS[name]
    text = re.escape(f"{NOT_AN_ARRAY}. Fix: numpy.asarray(...)")
    with pytest.raises(dml.InvalidArgumentError, match=f"^{text}$"):
        TABLE.bind_input(source)
    with pytest.raises(dml.InvalidArgumentError, match=rf"  DML-BIND-KIND: {text}\.$"):
        TABLE.bind(source, outputs())


NOTHING = NOT_AN_ARRAY.replace("list", "NoneType")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (INPUT.astype(object), "InputTensor has data type object; .*. Fix: numpy.split, or [^.]*."),
        (None, f"{NOTHING}. Fix: pass a contiguous array on the operator's device."),
    ],
)
def test_what_is_not_an_array_has_one_fix(source: Any, text: str) -> None:
    with pytest.raises(dml.InvalidArgumentError) as error:
        TABLE.bind(source, outputs())
    _, line = str(error.value).splitlines()
    assert re.fullmatch(f"  DML-BIND-KIND: {text}", line)
    assert line.count("Fix:") == 1


@pytest.mark.parametrize(("offset", "size"), [(0, 256), (208, 48), (208, None)])
def test_a_range_that_ends_with_the_buffer_is_accepted(offset: int, size: int | None) -> None:
    TABLE.bind(BufferBinding(BUFFER, offset, size), outputs())


class Index:
    """An integer of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("kind", [Index, np.int32, np.int64, np.array])
def test_offsets_and_sizes_may_be_any_integers(kind: Any) -> None:
    binding = BufferBinding(BUFFER, kind(16), kind(48))
    assert (type(binding.offset), type(binding.size_in_bytes)) == (int, int)
    assert TABLE.bind_input(binding)[1:] == TABLE.bind_input(BufferBinding(BUFFER, 16, 48))[1:]
    _, expected_violations = INPUTS["negative offset"]
    binding = BufferBinding(BUFFER, kind(-16), kind(48))
    assert reported(TABLE, binding, outputs()) == expected_violations


def test_a_range_that_is_exactly_as_large_as_the_tensor_is_accepted() -> None:
    TABLE.bind(BufferBinding(BUFFER, 0, 48), outputs())


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_number_of_outputs_is_refused(count: int) -> None:
    given_outputs = [*outputs(), np.zeros(1)][:count]
    assert reported(TABLE, INPUT, given_outputs) == [
        f"BIND-COUNT Outputs.BindingCount: {count} | 3"
    ]


def test_a_read_only_output_is_refused() -> None:
    expected_violation = "BIND-READ-ONLY OutputTensors[0]: read-only | writable"
    assert reported(TABLE, INPUT, [READ_ONLY_OUTPUT, *outputs()[1:]]) == [expected_violation]


def test_an_input_may_be_read_only() -> None:
    source = ramp(1, 1, 6, 2)
    source.flags.writeable = False
    assert TABLE.bind_input(source).read_only


def test_an_output_may_be_a_buffer_beside_arrays() -> None:
    TABLE.bind(INPUT, [BufferBinding(np.zeros(16, np.uint8)), *outputs()[1:]])


def test_arrays_on_another_device_are_refused() -> None:
    table = BindingTable(DESC, "cuda:1")
    expected_violations = [
        f"BIND-KIND {name}: an array on cpu | on cuda:1"
        for name in ("InputTensor", *(f"OutputTensors[{index}]" for index in range(3)))
    ]
    assert reported(table, INPUT, outputs()) == expected_violations
    assert reported(table, INPUT, [READ_ONLY_OUTPUT, *outputs()[1:]]) == [
        *expected_violations[:2],
        "BIND-READ-ONLY OutputTensors[0]: read-only | writable",
        *expected_violations[2:],
    ]


def copying(x: dml.TensorDesc) -> BindingTable:
    return BindingTable(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=x.sizes[:1]), "cpu")


def test_the_offset_must_have_the_guaranteed_alignment() -> None:
    table = copying(dml.TensorDesc("FLOAT32", (4,), guaranteed_base_offset_alignment=64))
    output = [np.zeros(4, np.float32)]
    expected_violation = "BIND-GUARANTEED-ALIGNMENT InputTensor.Offset: 32 | a multiple of 64"
    assert reported(table, BufferBinding(BUFFER, 32), output) == [expected_violation]
    table.bind(BufferBinding(BUFFER, 64), output)
    table.bind(BufferBinding(BUFFER, 0), output)


def test_single_bytes_are_bound_whatever_their_byte_order() -> None:
    table = copying(dml.TensorDesc("UINT8", (4,)))
    table.bind(np.zeros(4, np.uint8), [np.zeros(4, np.uint8)])
    violations = reported(table, np.zeros(4, np.int8), [np.zeros(4, np.uint8)])
    assert violations == ["ARRAY-DATA-TYPE InputTensor.DataType: int8 | uint8 (UINT8)"]


def test_the_size_of_a_broadcast_input_follows_from_its_strides() -> None:
    x = dml.TensorDesc("UINT16", (3, 4), strides=(0, 2))
    desc = dml.SplitOperatorDesc(x, [dml.TensorDesc("UINT16", (3, 4))], 1)
    store = np.zeros(8, np.uint16)
    source = np.lib.stride_tricks.as_strided(store, (3, 4), (0, 4))
    output = [np.zeros((3, 4), np.uint16)]
    bound_input, *_ = BindingTable(desc, "cpu").bind(source, output)
    # The last column begins at element 3 * 2, so the input has seven elements of two bytes.
    assert bound_input.span == (address(store), address(store) + 14)


# Overlaps: ranges of one buffer, in units of 16 bytes, for an input of three units and two outputs.
PAIR = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("UINT8", (48,)), axis=0, sizes=(16, 32))
PAIR_TABLE = BindingTable(PAIR, "cpu")


def ranges(
    source: int, first_start: int, second_start: int
) -> tuple[BufferBinding, list[BufferBinding]]:
    store = np.zeros(512, np.uint8)
    starts = (source, first_start, second_start)
    bound_input, *bindings = (BufferBinding(store, 16 * start) for start in starts)
    return bound_input, bindings


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
@example(0, 3, 4)  # neighbours
@example(3, 2, 0)
def test_an_output_that_shares_memory_with_another_output_or_the_input_is_reported(
    source: int, first_start: int, second_start: int
) -> None:
    of_input = set(range(source, source + 3))
    of_first, of_second = {first_start}, {second_start, second_start + 1}
    expected_violations = set()
    if of_first & of_second:
        # The output that begins later is at fault; of two that begin together, the longer one.
        earlier, later = (0, 1) if first_start <= second_start else (1, 0)
        expected_violations.add(
            f"BIND-OUTPUT-OVERLAP OutputTensors[{later}]: OutputTensors[{earlier}] "
            "| memory of its own"
        )
    for index, of_output in enumerate((of_first, of_second)):
        if of_input & of_output:
            expected_violations.add(
                f"BIND-IN-PLACE OutputTensors[{index}]: the input | memory of its own"
            )
    bindings = ranges(source, first_start, second_start)
    if expected_violations:
        assert set(reported(PAIR_TABLE, *bindings)) == expected_violations
    else:
        PAIR_TABLE.bind(*bindings)


@pytest.mark.parametrize(
    ("sizes", "offsets"),
    [((96, 16, 32), (0, 16, 64)), ((32, 16, 32), (0, 16, 16))],
    ids=["within a longer one, after others", "of those that end together, the first is named"],
)
def test_each_output_that_begins_inside_another_output_is_reported(
    sizes: Any, offsets: Any
) -> None:
    x = dml.TensorDesc("UINT8", (sum(sizes),))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=sizes)
    store = np.zeros(512, np.uint8)
    bindings = [BufferBinding(store, offset) for offset in offsets]
    violations = reported(BindingTable(desc, "cpu"), np.zeros(sum(sizes), np.uint8), bindings)
    assert violations == [
        f"BIND-OUTPUT-OVERLAP OutputTensors[{index}]: OutputTensors[0] | memory of its own"
        for index in (1, 2)
    ]


def test_interleaved_arrays_overlap_because_ranges_of_bytes_are_bound() -> None:
    x = dml.TensorDesc("UINT8", (4, 2))
    columns = [dml.TensorDesc("UINT8", (4, 1), strides=(2, 1))] * 2
    table = BindingTable(dml.SplitOperatorDesc(x, columns, axis=1), "cpu")
    source, matrix = np.zeros((4, 2), "u1"), np.zeros((4, 2), "u1")
    outs = [matrix[:, :1], matrix[:, 1:]]
    assert reported(table, source, outs) == [
        "BIND-OUTPUT-OVERLAP OutputTensors[1]: OutputTensors[0] | memory of its own"
    ]
    dml.split(source, 2, 1, out=outs)  # it binds nothing


def test_an_output_with_wrong_strides_in_the_memory_of_the_input_breaks_both_rules() -> None:
    store = np.zeros((1, 1, 6, 2), np.float32)
    violations = reported(TABLE, store, [store[:, :, 5:3:-1], *outputs()[1:]])
    assert violations == [
        "ARRAY-STRIDES OutputTensors[0].Strides: [48, 48, -8, 4] bytes | [16, 16, 8, 4] bytes",
        "BIND-IN-PLACE OutputTensors[0]: the input | memory of its own",
    ]


def test_values_that_are_not_arrays_break_only_the_rule_about_kinds() -> None:
    rules = [line.split(":")[0] for line in reported(TABLE, [1], [[1], [1], [1]])]
    assert rules == ["BIND-KIND InputTensor", *(f"BIND-KIND OutputTensors[{i}]" for i in range(3))]


def test_all_broken_rules_of_bindings_are_reported_at_once() -> None:
    given_outputs = [READ_ONLY_OUTPUT, BufferBinding(BUFFER, 250, 16), INPUT.view("i4"), INPUT]
    assert reported(TABLE, BufferBinding(BUFFER, 8, 40), given_outputs) == [
        "BIND-COUNT Outputs.BindingCount: 4 | 3",
        "BIND-OFFSET-ALIGNMENT InputTensor.Offset: 8 | a multiple of 16",
        "BIND-SIZE InputTensor.SizeInBytes: 40 | at least 48",
        "BIND-READ-ONLY OutputTensors[0]: read-only | writable",
        "BIND-OFFSET-ALIGNMENT OutputTensors[1].Offset: 250 | a multiple of 16",
        "BIND-RANGE OutputTensors[1].SizeInBytes: 16 bytes from byte 250 | inside the buffer's "
        "256 bytes",
        "ARRAY-DATA-TYPE OutputTensors[2].DataType: int32 | float32 (FLOAT32)",
        "ARRAY-SHAPE OutputTensors[2].Sizes: [1, 1, 6, 2] | [1, 1, 3, 2]",
    ]


def test_a_read_only_output_is_reported_with_all_rules_that_it_breaks() -> None:
    buffer = BufferBinding(np.frombuffer(bytes(64), np.uint8), offset=4)
    assert reported(TABLE, INPUT, [READ_ONLY_OUTPUT.reshape(4), buffer, outputs()[2]]) == [
        "BIND-READ-ONLY OutputTensors[0]: read-only | writable",
        "ARRAY-SHAPE OutputTensors[0].Sizes: [4] | [1, 1, 2, 2]",
        "BIND-READ-ONLY OutputTensors[1]: read-only | writable",
        "BIND-OFFSET-ALIGNMENT OutputTensors[1].Offset: 4 | a multiple of 16",
    ]
