"""Runs a DxDispatch model: compiles its Splits, allocates its resources, executes its commands.

8-bit integers are printed as numbers. DxDispatch prints them as characters.
"""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    OutOfMemoryError,
    one_line,
    path_in_errors,
    prefix_errors,
)
from dmlsplit.execution.binding import BufferBinding
from dmlsplit.execution.device import CompiledOperator, Device
from dmlsplit.execution.dxdispatch.initial_values import SourceFile
from dmlsplit.execution.dxdispatch.model import (
    Binding,
    Dispatch,
    Model,
    OutputCommand,
    Resource,
    load,
)
from dmlsplit.files.atomic import atomic_write, refuse_inputs
from dmlsplit.files.npy_header import npy_header
from dmlsplit.geometry import ceil_div
from dmlsplit.messages import printable


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run.

    Attributes
    ----------
    lines : tuple of str
        The printed lines, in DxDispatch's form.
    resources : mapping
        The final contents of each resource that commands use, as far as they use it, as a flat
        NumPy array of its data type.

    See Also
    --------
    run : Reads a model and runs it.

    Examples
    --------
    >>> run("tests/data/dispatch.json", "cpu").resources["Rest"].tolist()
    [4.0, 5.0, 9.0, 10.0]
    """

    lines: tuple[str, ...]
    resources: Mapping[str, np.ndarray]


def run(
    path: str | PathLike[str],
    device: Device | str | None = None,
    *,
    output: Callable[[str], object] | None = None,
    overwrite: bool = False,
) -> Result:
    """Run a DxDispatch model: dispatch its Splits, print and write its resources.

    Parameters
    ----------
    path : str or os.PathLike
        The .json file.
    device : Device or str, optional
        A `dmlsplit.Device` or its name; None means a GPU, or the CPU without one.
    output : callable, optional
        A function, such as `print`, that is called with each printed line.
    overwrite : bool
        Whether writeFile commands may replace files that existed before the run.

    Returns
    -------
    Result
        The printed lines and the final contents of the resources.

    Raises
    ------
    InvalidArgumentError
        If the file is not such a model or dispatches another operator, if a descriptor or binding
        breaks a rule, or if a file to write exists, is an input, or cannot be written.
    OutOfMemoryError
        If what the commands use of a resource does not fit in memory.

    See Also
    --------
    load : Reads a model without running it.

    Examples
    --------
    >>> run("tests/data/dispatch.json", "cpu").lines[0]
    "Resource 'Rows': 1, 2, 3, 6, 7, 8"
    """
    if not (output is None or callable(output)):
        raise ArgumentTypeError(f"output is {output!r}; it must be a function such as print")
    model = load(path)
    with path_in_errors(path):
        _check_targets(model, Path(path), overwrite)
        return _run(model, device if isinstance(device, Device) else Device(device), output)


def _run(model: Model, device: Device, output: Callable[[str], object] | None) -> Result:
    """Execute the commands of a model."""
    # First, because it can refuse a model before anything is allocated or written.
    operators = _compiled_splits(model, device)
    ends = _used_bytes(model)
    resources = {entry.name: entry for entry in model.resources if entry.name in ends}
    memory = {
        name: to_device(_resource_memory(resource, ends[name]), device.name)
        for name, resource in resources.items()
    }
    # Later commands do not change an input that DirectML owns.
    owned = {
        entry.name: _buffer_binding(memory[binding.resource].copy(), binding)
        for entry in model.dispatchables
        for binding in entry.bindings
    }
    lines: list[str] = []
    for command in model.commands:
        if isinstance(command, Dispatch):
            buffers = [_buffer_binding(memory[part.resource], part) for part in command.bindings]
            source = owned.get(command.dispatchable) or buffers.pop(0)
            with prefix_errors(f"{command.path}.bindings"):
                operators[command.dispatchable].dispatch(source, buffers)
            continue
        contents = memory[command.resource][: command.size_in_bytes]
        lines.append(_deliver_output(command, _elements(contents, resources[command.resource])))
        if output is not None:
            output(lines[-1])
    final = {name: _elements(memory[name], resource) for name, resource in resources.items()}
    return Result(tuple(lines), final)


def _compiled_splits(model: Model, device: Device) -> dict[str, CompiledOperator]:
    """The Splits of a model, by name."""
    operators: dict[str, CompiledOperator] = {}
    for entry in model.dispatchables:
        if entry.desc is not None:
            with prefix_errors(f"dispatchables.{entry.name}"):
                operators[entry.name] = device.compile(entry.desc)
    return operators


def _buffer_binding(memory: Any, binding: Binding) -> BufferBinding:
    """The range of a resource's memory that is bound."""
    return BufferBinding(memory, binding.offset_in_bytes, binding.size_in_bytes)


def _elements(memory: Any, resource: Resource) -> np.ndarray:
    """The whole elements in the memory of a resource."""
    size = resource.dtype.itemsize
    return to_host(memory)[: len(memory) // size * size].view(resource.dtype)


def _used_bytes(model: Model) -> dict[str, int]:
    """For each used resource, the number of bytes from its start that the model uses."""
    bindings = [binding for entry in model.dispatchables for binding in entry.bindings]
    for command in model.commands:
        if isinstance(command, Dispatch):
            bindings += command.bindings
        else:
            bindings.append(Binding(command.resource, 0, command.size_in_bytes))
    ends: dict[str, int] = {}
    for name, offset, size in bindings:
        ends[name] = max(offset + size, ends.get(name, 0))
    return ends


def _resource_memory(resource: Resource, end: int) -> Any:
    """The bytes of a resource up to at least `end`, with the initial values among them."""
    values = resource.values
    start = resource.offset_in_bytes
    items = ceil_div(max(0, end - start), values.item_bytes)
    filled = min(items * values.item_bytes, values.size_in_bytes)
    size = max(end, start + filled)
    try:
        memory = np.zeros(size, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(
            f"resource {resource.name!r} needs {size} bytes, which do not fit in memory. Fix: "
            "make it smaller"
        ) from None
    values.fill(memory[start : start + filled])
    return memory


def _deliver_output(command: OutputCommand, values: np.ndarray) -> str:
    """Write elements to the command's file, atomically, if it has one; return the line to print."""
    name = printable(command.resource)
    target = command.target
    header = b""
    if target is None:
        # DxDispatch prints floats with C++ streams, which show six significant digits.
        number_format = "{:g}" if values.dtype.kind == "f" else "{}"
        return f"Resource '{name}': {', '.join(map(number_format.format, values.tolist()))}"
    if target.suffix.lower() == ".npy":
        header = npy_header(command.shape or (len(values),), False, values.dtype)
    with _name_target_in_errors(command):
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as draft, draft.open("wb") as file:
            file.write(header)
            file.write(values.data)
    return f"Resource '{name}' written to '{printable(str(target))}'"


@contextmanager
def _name_target_in_errors(command: OutputCommand) -> Iterator[None]:
    """Let every error of the block be an InvalidArgumentError with the command and its file."""
    with prefix_errors(command.path):
        try:
            yield
        except OSError as error:
            reason = one_line(error, with_path=False)
            raise InvalidArgumentError(f"{command.target} cannot be written: {reason}") from None


def _check_targets(model: Model, file: Path, overwrite: bool) -> None:
    """Refuse to write over inputs, and over existing files unless `overwrite`."""
    values = [resource.values for resource in model.resources]
    inputs = [file, *(value.path for value in values if isinstance(value, SourceFile))]
    commands = [entry for entry in model.commands if isinstance(entry, OutputCommand)]
    folders = set(chain.from_iterable(entry.target.parents for entry in commands if entry.target))
    for command in commands:
        if command.target is None:
            continue
        with _name_target_in_errors(command):
            if command.target in folders:
                raise InvalidArgumentError(
                    f"{command.target} cannot be written: another command writes a file in it"
                )
            refuse_inputs(command.target, inputs)
            if command.target.is_dir():
                raise InvalidArgumentError(f"{command.target} cannot be written: it is a folder")
            if command.target.is_file() and not overwrite:
                raise InvalidArgumentError(
                    f"{command.target} exists; it is not replaced. Fix: add --overwrite"
                )
