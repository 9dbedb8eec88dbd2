"""Runs a DxDispatch model: compiles its Splits, allocates its resources, executes its commands."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.binding import BufferBinding
from dmlsplit.device import CompiledOperator, Device
from dmlsplit.directml.tensor import TensorFlags
from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError, OutOfMemoryError, about, within
from dmlsplit.frontends.dxdispatch.model import (
    Binding,
    Bindings,
    Dispatch,
    Dispatchable,
    Model,
    Print,
    Resource,
    WriteFile,
    load,
)
from dmlsplit.frontends.dxdispatch.output import check_targets, printed, write_file
from dmlsplit.frontends.dxdispatch.values import LITTLE_ENDIAN
from dmlsplit.messages import printable


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run.

    Attributes
    ----------
    lines : tuple of str
        The printed lines, in DxDispatch's form.
    resources : mapping
        The final contents of each resource, as a flat NumPy array of its data type.
    """

    lines: tuple[str, ...]
    resources: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class _Buffer:
    resource: Resource
    memory: Any  # its bytes on the device

    def elements(self, size_in_bytes: int) -> np.ndarray:
        dtype = self.resource.dtype
        return to_host(self.memory)[: size_in_bytes // dtype.itemsize * dtype.itemsize].view(dtype)


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
    path
        The .json file.
    device
        A `dmlsplit.Device` or its name; None means the GPU, or the CPU if there is none.
    output
        A function, such as `print`, that is called with each printed line.
    overwrite
        Whether writeFile commands may replace files that existed before the run.

    Returns
    -------
    Result
        The printed lines and the final contents of the resources.

    Raises
    ------
    InvalidArgumentError
        If the file is not such a model or dispatches another operator, if a descriptor or binding
        breaks a rule, or if a file to write exists, is an input, or does not fit on the disk.
    OutOfMemoryError
        If the resources do not fit in the free memory.
    """
    if not (output is None or callable(output)):
        raise ArgumentTypeError(f"output is {output!r}; it must be a function such as print")
    model = load(path)
    with about(path):
        check_targets(model, Path(path), overwrite)
        return _run(model, device if isinstance(device, Device) else Device(device), output)


def _run(model: Model, device: Device, output: Callable[[str], object] | None) -> Result:
    dispatched = {each.dispatchable for each in model.commands if isinstance(each, Dispatch)}
    splits = [entry for entry in model.dispatchables if entry.name in dispatched or entry.desc]
    # Refuse what can be refused before anything is allocated or written.
    compiled = [(entry, _compiled(entry, device)) for entry in splits]
    _check_memory(model)
    buffers = {entry.name: _allocated(entry, device) for entry in model.resources}
    ready = {e.name: (split, _owned_input(e, split, buffers)) for e, split in compiled}
    lines: list[str] = []

    def emit(line: str) -> None:
        lines.append(line)
        if output is not None:
            output(line)

    for command in model.commands:
        match command:
            case Dispatch():
                operator, owned = ready[command.dispatchable]
                place = f"{command.place}.bindings"
                points = ["OutputTensors"] if owned else ["InputTensor", "OutputTensors"]
                bound = _bound(place, command.bindings, points, buffers)
                with within(place):
                    operator.dispatch(owned or bound["InputTensor"][0], bound["OutputTensors"])
            case Print():
                buffer = buffers[command.resource]
                values = buffer.elements(buffer.resource.values.size_in_bytes)
                emit(printed(printable(command.resource), values, command.verbose))
            case WriteFile():
                buffer = buffers[command.resource]
                write_file(command, buffer.elements(buffer.resource.size_in_bytes))
                emit(printable(f"Resource '{command.resource}' written to '{command.path}'"))
    contents = {name: buffer.elements(_used(buffer.resource)) for name, buffer in buffers.items()}
    return Result(tuple(lines), contents)


def _compiled(entry: Dispatchable, device: Device) -> CompiledOperator:
    place = f"dispatchables.{entry.name}"
    if entry.desc is None:
        what = f"{place} is a {entry.type[:80]!r}"
        raise InvalidArgumentError(f"{what}; only DML_OPERATOR_SPLIT is supported")
    with within(place):
        return device.compile(entry.desc)


def _check_memory(model: Model) -> None:
    # Linux grants more memory than it has, and kills a process that uses it. Windows, which has no
    # sysconf, does not.
    if not hasattr(os, "sysconf"):
        return
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = re.search(r"MemAvailable: *(\d+) kB", _text("/proc/meminfo"))
    limit = _text("/sys/fs/cgroup/memory.max").strip()  # the container's
    limits = [int(limit)] if limit.isdigit() else []
    free = min(machine, int(found[1]) << 10 if found else machine, *limits)
    wanted = sum(resource.size_in_bytes for resource in model.resources)
    if wanted > free:
        raise OutOfMemoryError(f"resources take {wanted} bytes; this machine has {free} free")


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text()
    return ""


def _allocated(resource: Resource, device: Device) -> _Buffer:
    try:
        memory: Any = np.zeros(resource.size_in_bytes, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(
            f"resource {resource.name!r}: {resource.size_in_bytes} bytes do not fit in memory"
        ) from None
    start = resource.offset_in_bytes
    resource.values.fill(memory[start : start + resource.values.size_in_bytes])
    return _Buffer(resource, to_device(memory, device.name))


def _owned_input(
    entry: Dispatchable, compiled: CompiledOperator, buffers: Mapping[str, _Buffer]
) -> BufferBinding | None:
    """A copy of an OWNED_BY_DML input; None if the dispatch binds the input."""
    place = f"dispatchables.{entry.name}.bindings"
    if compiled.desc.input_tensor.flags & TensorFlags.OWNED_BY_DML:
        (source,) = _bound(place, entry.bindings, ["InputTensor"], buffers)["InputTensor"]
        buffer: Any = source.buffer  # NumPy's or CuPy's
        return replace(source, buffer=buffer.copy())
    if entry.bindings:
        raise InvalidArgumentError(
            f"{place}: only an InputTensor with the flag OWNED_BY_DML is bound here. "
            "Fix: bind the other tensors in the dispatch command"
        )
    return None


def _bound(
    place: str, bindings: Bindings, points: list[str], buffers: Mapping[str, _Buffer]
) -> dict[str, list[BufferBinding]]:
    """The buffers that are bound to each of the points; other points are refused."""
    given = dict(bindings)
    unknown = [point for point in given if point not in points]
    missing = [point for point in points if point not in given]
    if unknown or missing:
        what = f"binds {unknown[0][:80]!r}" if unknown else f"lacks {missing[0]!r}"
        raise InvalidArgumentError(f"{place} {what}; it must bind {' and '.join(points)}")
    count = len(given.get("InputTensor", ("one",)))
    if count != 1:
        raise InvalidArgumentError(f"{place}.InputTensor binds {count} resources; it must bind 1")
    with within(place):
        return {
            point: [_buffer_binding(binding, buffers[binding.resource]) for binding in bound]
            for point, bound in given.items()
        }


def _buffer_binding(binding: Binding, buffer: _Buffer) -> BufferBinding:
    resource = buffer.resource
    known = resource.data_type in LITTLE_ENDIAN
    width = binding.element_size_in_bytes or (resource.dtype.itemsize if known else 0)
    offset = binding.element_offset * width
    if offset > resource.size_in_bytes:
        raise InvalidArgumentError(
            f"elementOffset {binding.element_offset} of {resource.name[:80]!r} is at byte "
            f"{offset}; the resource has {resource.size_in_bytes} bytes"
        )
    return BufferBinding(buffer.memory, offset, resource.size_in_bytes - offset)


def _used(resource: Resource) -> int:
    """The size of a resource without the padding to a multiple of 4 bytes."""
    padding = resource.size_in_bytes - resource.values.size_in_bytes - resource.offset_in_bytes
    return resource.size_in_bytes - (padding if padding < 4 else 0)
