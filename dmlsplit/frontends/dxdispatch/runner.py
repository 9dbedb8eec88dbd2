"""Runs a DxDispatch model: compiles its Splits, allocates its resources, executes its commands."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.binding import BufferBinding
from dmlsplit.device import CompiledOperator, Device
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc, TensorFlags
from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError, OutOfMemoryError, about, within
from dmlsplit.frontends.dxdispatch.model import (
    Binding,
    Bindings,
    Dispatch,
    Dispatchable,
    Model,
    Output,
    Resource,
    load,
)
from dmlsplit.frontends.dxdispatch.output import check_targets, deliver
from dmlsplit.geometry import ceil_div

# The parts of resources that are bound to each point, as far as its tensors reach.
_Bound = dict[str, list[Binding]]


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
    path
        The .json file.
    device
        A `dmlsplit.Device` or its name; None means a GPU, or the CPU without one.
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
        If what the commands use of a resource does not fit in memory.
    """
    if not (output is None or callable(output)):
        raise ArgumentTypeError(f"output is {output!r}; it must be a function such as print")
    model = load(path)
    with about(path):
        check_targets(model, Path(path), overwrite)
        return _run(model, device if isinstance(device, Device) else Device(device), output)


def _run(model: Model, device: Device, output: Callable[[str], object] | None) -> Result:
    # Refuse what can be refused before anything is allocated or written.
    dispatches = [command for command in model.commands if isinstance(command, Dispatch)]
    used = {dispatch.dispatchable for dispatch in dispatches}
    splits = {s.name: s for s in model.dispatchables if s.desc or s.name in used}
    operators = {name: _compiled(entry, device) for name, entry in splits.items()}
    owned = {
        name: _parts(f"dispatchables.{name}", entry.bindings, operators[name].desc, True)
        for name, entry in splits.items()
    }
    bound = {
        path: _parts(path, bindings, operators[name].desc, False)
        for path, name, bindings in dispatches
    }
    memory = _allocated(model, [*owned.values(), *bound.values()], device)
    resources = {entry.name: entry for entry in model.resources if entry.name in memory}
    # Later commands do not change an input that DirectML owns.
    inputs = {
        name: BufferBinding(memory[part.resource].copy(), *part[1:])
        for name, points in owned.items()
        for part in points.get("InputTensor", [])
    }
    lines: list[str] = []
    for command in model.commands:
        if isinstance(command, Dispatch):
            operator, source = operators[command.dispatchable], inputs.get(command.dispatchable)
            _dispatch(command.path, operator, source, bound[command.path], memory)
            continue
        printed = memory[command.resource][: command.size_in_bytes]
        lines.append(deliver(command, _elements(printed, resources[command.resource])))
        if output is not None:
            output(lines[-1])
    contents = {name: _elements(memory[name], entry) for name, entry in resources.items()}
    return Result(tuple(lines), contents)


def _dispatch(
    path: str,
    operator: CompiledOperator,
    owned: BufferBinding | None,
    bound: _Bound,
    memory: Mapping[str, Any],
) -> None:
    points = {
        point: [BufferBinding(memory[part.resource], *part[1:]) for part in parts]
        for point, parts in bound.items()
    }
    with within(f"{path}.bindings"):
        operator.dispatch(owned or points["InputTensor"][0], points["OutputTensors"])


def _elements(memory: Any, resource: Resource) -> np.ndarray:
    size = resource.dtype.itemsize
    return to_host(memory)[: len(memory) // size * size].view(resource.dtype)


def _compiled(entry: Dispatchable, device: Device) -> CompiledOperator:
    path = f"dispatchables.{entry.name}"
    if entry.desc is None:
        what = f"{path} is a {entry.type[:80]!r}"
        raise InvalidArgumentError(f"{what}; only DML_OPERATOR_SPLIT is supported")
    with within(path):
        return device.compile(entry.desc)


def _parts(path: str, bindings: Bindings, desc: SplitOperatorDesc, initializes: bool) -> _Bound:
    """The part of each bound resource that its tensor reaches."""
    # Only an OWNED_BY_DML input is bound at initialization; a dispatch then binds only the outputs.
    is_owned = bool(desc.input_tensor.flags & TensorFlags.OWNED_BY_DML)
    points: dict[str, Sequence[TensorDesc]] = {}
    if is_owned == initializes:
        points["InputTensor"] = [desc.input_tensor]
    if not initializes:
        points["OutputTensors"] = desc.output_tensors
    names = [name for name, _ in bindings]
    wrong = [f"binds {name[:80]!r}" for name in names if name not in points]
    wrong += [f"lacks {name!r}" for name in points if name not in names]
    if wrong:
        allowed = " and ".join(points) or "nothing, as its InputTensor is not OWNED_BY_DML"
        raise InvalidArgumentError(f"{path}.bindings {wrong[0]}; it must bind {allowed}")
    if "InputTensor" in points and (count := len(dict(bindings)["InputTensor"])) != 1:
        what = f"{path}.bindings.InputTensor binds {count} resources"
        raise InvalidArgumentError(f"{what}; it must bind 1")
    # Tensors are repeated for bindings in excess, which the dispatch refuses.
    return {
        name: [
            part._replace(size_in_bytes=min(part.size_in_bytes, tensor.total_tensor_size_in_bytes))
            for part, tensor in zip(bound, cycle(points[name]), strict=False)
        ]
        for name, bound in bindings
    }


def _allocated(model: Model, bound: Iterable[_Bound], device: Device) -> dict[str, Any]:
    """The bytes of each used resource, up to the last one that a command reads or writes."""
    ends: dict[str, int] = {}
    parts = chain.from_iterable(chain.from_iterable(points.values() for points in bound))
    ranges = [(part.resource, part.offset_in_bytes + part.size_in_bytes) for part in parts]
    ranges += [(c.resource, c.size_in_bytes) for c in model.commands if isinstance(c, Output)]
    for name, end in ranges:
        ends[name] = max(end, ends.get(name, 0))
    return {
        resource.name: to_device(_memory(resource, ends[resource.name]), device.name)
        for resource in model.resources
        if resource.name in ends
    }


def _memory(resource: Resource, end: int) -> Any:
    """The bytes of a resource up to at least `end`, with the initial values among them."""
    values, start = resource.values, resource.offset_in_bytes
    items = ceil_div(max(0, end - start), values.item_bytes)
    filled = min(items * values.item_bytes, values.size_in_bytes)
    try:
        memory = np.zeros(max(end, start + filled), np.uint8)
    except MemoryError:
        what = f"resource {resource.name!r}: {end} bytes do not fit in memory"
        raise OutOfMemoryError(what) from None
    values.fill(memory[start : start + filled])
    return memory
