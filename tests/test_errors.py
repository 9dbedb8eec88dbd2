"""Errors: their HRESULTs, and the file that they concern."""

import pickle
from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.errors import (
    ArgumentTypeError,
    NoEquivalentError,
    one_line,
    path_in_errors,
    prefix_errors,
)


# Microsoft, "Common HRESULT values" and "DXGI_ERROR".
@pytest.mark.parametrize(
    ("kind", "hresult", "python"),
    [
        (dml.DmlError, 0x80004005, Exception),  # E_FAIL
        (dml.InvalidArgumentError, 0x80070057, ValueError),  # E_INVALIDARG
        (NoEquivalentError, 0x80070057, ValueError),
        (ArgumentTypeError, 0x80070057, ValueError),
        (ArgumentTypeError, 0x80070057, TypeError),
        (dml.UnsupportedError, 0x887A0004, Exception),  # DXGI_ERROR_UNSUPPORTED
        (dml.OutOfMemoryError, 0x8007000E, MemoryError),  # E_OUTOFMEMORY
        (dml.DeviceRemovedError, 0x887A0005, Exception),  # DXGI_ERROR_DEVICE_REMOVED
    ],
)
def test_an_error_has_the_hresult_of_directml(
    kind: type[dml.DmlError], hresult: int, python: type[Exception]
) -> None:
    assert kind.hresult == hresult
    assert issubclass(kind, dml.DmlError)
    assert issubclass(kind, python)


def test_the_innermost_file_is_added_to_an_error() -> None:
    with (
        pytest.raises(dml.InvalidArgumentError) as error,
        path_in_errors("outer"),
        path_in_errors(Path("m.onnx")),
    ):
        raise dml.InvalidArgumentError("axis is 7")
    assert error.value.path == "m.onnx"
    assert error.value.message == "axis is 7"
    assert str(error.value) == "m.onnx: axis is 7"
    assert error.value.report is None


def test_a_prefix_begins_the_message_of_an_error_and_keeps_its_report() -> None:
    report = dml.validate(dml.SplitOperatorDesc(dml.TensorDesc("INT4", (4,)), (), 0))
    with (
        pytest.raises(dml.InvalidArgumentError) as error,
        prefix_errors("commands[0]"),
        prefix_errors("Axis"),
    ):
        raise dml.InvalidArgumentError("is 7", report)
    assert error.value.message == "commands[0]: Axis: is 7"
    assert error.value.report is report
    with pytest.raises(dml.UnsupportedError, match=r"^no GPU$"), prefix_errors("commands[0]"):
        raise dml.UnsupportedError("no GPU")


def test_errors_reach_another_process_complete() -> None:
    report = dml.validate(dml.SplitOperatorDesc(dml.TensorDesc("INT4", (4,)), (), 0))
    for error in (
        dml.InvalidArgumentError("axis is 7", report),
        ArgumentTypeError("axis is 'x'"),
        NoEquivalentError("SPLIT: no equivalent: odd runs", report, "odd runs"),
        dml.OutOfMemoryError("3 bytes"),
    ):
        error.path = "m.onnx"
        type(error).__new__(type(error))  # Dask makes errors of its workers like this.
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def of_a_file(message: str) -> dml.InvalidArgumentError:
    """An error about m.onnx."""
    with pytest.raises(dml.InvalidArgumentError) as error, path_in_errors("m.onnx"):
        raise dml.InvalidArgumentError(message)
    return error.value


@pytest.mark.parametrize(
    ("error", "text", "path"),
    [
        (ValueError("a\n  b"), "a b", ""),
        (ValueError(), "ValueError", ""),
        (MemoryError(), "MemoryError", ""),
        (RecursionError("maximum recursion depth exceeded"), "is nested too deeply", ""),
        (dml.InvalidArgumentError("is bad"), "is bad", ""),
        (of_a_file("is\nbad"), "is bad", "m.onnx: "),
        (FileNotFoundError(2, "No such file", "x.npy"), "No such file", "x.npy: "),
        (OSError(28, "No space left"), "No space left", ""),
        (OSError("odd"), "odd", ""),
    ],
)
def test_one_line_has_the_path_and_the_message_of_an_error(
    error: Exception, text: str, path: str
) -> None:
    assert one_line(error) == path + text
    assert one_line(error, with_path=False) == text
