"""DxDispatch models as values: resources, dispatchables and commands.

Format: microsoft/DirectML, DxDispatch/doc/Guide.md and its parser, which also skips unknown fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from dmlsplit.checks import path_text
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import UINT64_MAX, UINT_MAX, TensorDesc, TensorFlags
from dmlsplit.errors import path_in_errors
from dmlsplit.execution.dxdispatch.initial_values import (
    LITTLE_ENDIAN,
    InitialValues,
    path_in,
    read_values,
)
from dmlsplit.files.fields import Field
from dmlsplit.files.npy_header import MAX_DIMENSIONS
from dmlsplit.files.strict_json import read_json
from dmlsplit.messages import cut_middle, shown
from dmlsplit.models.dxdispatch.descriptor import SPLIT_NAMES, data_type_of, read_split

# A D3D12 buffer has at most 4 GiB.
MAX_RESOURCE_BYTES = 1 << 32
# The most bytes of all print commands together. The text of the bytes is several times as long.
MAX_PRINTED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Resource:
    """A buffer, and its initial values, which start at an offset."""

    name: str
    values: InitialValues
    offset_in_bytes: int
    size_in_bytes: int

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements."""
        return LITTLE_ENDIAN[self.values.data_type]


class Binding(NamedTuple):
    """The part of a resource that is bound to a tensor, as far as the tensor reaches."""

    resource: str
    offset_in_bytes: int
    size_in_bytes: int


_Resources = Mapping[str, Resource]
_Entry = TypeVar("_Entry")


class Dispatchable(NamedTuple):
    """An operator to dispatch."""

    name: str
    type: str
    # The descriptor of a Split; None for other operators.
    desc: SplitOperatorDesc | None
    # The binding of an OWNED_BY_DML input, which is made at initialization.
    bindings: tuple[Binding, ...] = ()


class Dispatch(NamedTuple):
    """The command that runs a dispatchable."""

    # Where the document has the command, such as ``commands[0]``.
    path: str
    # The name of what is run.
    dispatchable: str
    # The binding of the input, unless DirectML owns it, and then those of the outputs.
    bindings: tuple[Binding, ...]


class OutputCommand(NamedTuple):
    """The command that prints the beginning of a resource, or writes it to a file."""

    path: str
    resource: str
    size_in_bytes: int
    # The file that is written; None if the resource is printed.
    target: Path | None = None
    # The shape in a .npy file; empty for a flat array.
    shape: tuple[int, ...] = ()


Command = Dispatch | OutputCommand


@dataclass(frozen=True, slots=True)
class Model:
    """A DxDispatch model (microsoft/DirectML, DxDispatch/doc/Guide.md).

    Attributes
    ----------
    resources : tuple of Resource
        Buffers with initial values.
    dispatchables : tuple of Dispatchable
        Operators; only those of Splits have a descriptor.
    commands : tuple of Command
        What is dispatched, printed and written, in order.

    See Also
    --------
    load : Reads a model from a file.

    Examples
    --------
    >>> [resource.name for resource in load("tests/data/dispatch.json").resources]
    ['Input', 'Rows', 'Rest']
    """

    resources: tuple[Resource, ...]
    dispatchables: tuple[Dispatchable, ...]
    commands: tuple[Command, ...]


def load(path: str | PathLike[str]) -> Model:
    """Read a DxDispatch model.

    No resource is allocated; source files are checked, but not loaded.

    Parameters
    ----------
    path : str or os.PathLike
        The .json file. The files that it names must be in its folder, or in a folder below.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    InvalidArgumentError
        If the file is not such a model; the message names the field.

    See Also
    --------
    run : Reads a model and runs it.

    Examples
    --------
    >>> load("tests/data/dispatch.json").dispatchables[0].name
    'split'
    """
    file = Path(path_text(path))
    with path_in_errors(path):
        return _model(read_json(file), file.parent)


def _model(root: Field, folder: Path) -> Model:
    """The model of a document whose files are in `folder`."""
    entries = root.get("resources").members()
    resources = {name: _resource(name, field, folder) for name, field in entries}
    entries = root.get("dispatchables").members()
    dispatchables = {name: _dispatchable(name, field, resources) for name, field in entries}
    array = root.get("commands")
    commands = tuple(_command(field, folder, resources, dispatchables) for field in array.items())
    outputs = [command for command in commands if isinstance(command, OutputCommand)]
    printed = sum(output.size_in_bytes for output in outputs if not output.target)
    if printed > MAX_PRINTED_BYTES:
        raise array.invalid(
            f"print {printed} bytes; at most {MAX_PRINTED_BYTES} are printed. Fix: use writeFile"
        )
    return Model(tuple(resources.values()), tuple(dispatchables.values()), commands)


def _resource(name: str, field: Field, folder: Path) -> Resource:
    """A resource, whose initial values must fit."""
    data_type = data_type_of(field.optional("initialValuesDataType", default="UNKNOWN"))
    values = read_values(field.get("initialValues"), data_type, folder)
    if values.size_in_bytes == 0:
        raise field.get("initialValues").invalid("is empty; it must have at least one value")
    offset = field.optional("initialValuesOffsetInBytes", default=0).integer(0, UINT64_MAX)
    rounded = (values.size_in_bytes + 3) // 4 * 4
    size = field.optional("sizeInBytes", default=rounded).integer(0, UINT64_MAX)
    if size > MAX_RESOURCE_BYTES:
        raise field.invalid(
            f"is a buffer of {size} bytes; at most {MAX_RESOURCE_BYTES} are allowed"
        )
    needed = values.size_in_bytes + offset
    if needed > size:
        filled = f"{values.size_in_bytes} bytes of initial values at offset {offset}"
        raise field.invalid(f"has {filled}; its size is {size}, and must be at least {needed}")
    return Resource(name, values, offset, size)


def _dispatchable(name: str, field: Field, resources: _Resources) -> Dispatchable:
    """A Split with its descriptor, another operator with its type only."""
    operator = field.get("type", "Type").text()
    if operator not in SPLIT_NAMES:
        return Dispatchable(name, operator, None)
    desc = read_split(field)
    bindings = field.find("bindings") or Field({}, f"{field.path}.bindings")
    return Dispatchable(name, operator, desc, _bindings(bindings, desc, resources, True))


def _bindings(
    field: Field, desc: SplitOperatorDesc, resources: _Resources, initializes: bool
) -> tuple[Binding, ...]:
    """What is bound when an operator is initialized, or else when it is dispatched."""
    # Only an OWNED_BY_DML input is bound at initialization; a dispatch then binds only the outputs.
    is_owned = bool(desc.input_tensor.flags & TensorFlags.OWNED_BY_DML)
    tensors_by_name: dict[str, Sequence[TensorDesc]] = {}
    if is_owned == initializes:
        tensors_by_name["InputTensor"] = [desc.input_tensor]
    if not initializes:
        tensors_by_name["OutputTensors"] = desc.output_tensors
    entries = {name: entry.one_or_many() for name, entry in field.members()}
    _check_names(field, entries, list(tensors_by_name))
    return tuple(
        _binding(entry, tensor, resources)
        for name, tensors in tensors_by_name.items()
        # Tensors are repeated for bindings in excess, which the dispatch refuses.
        for entry, tensor in zip(entries[name], cycle(tensors), strict=False)
    )


def _check_names(field: Field, entries: Mapping[str, list[Field]], names: Sequence[str]) -> None:
    """Refuse bindings of other tensors than these, and more than one of the input."""
    problems = [f"binds {name[:80]!r}" for name in entries if name not in names]
    problems += [f"lacks {name!r}" for name in names if name not in entries]
    if problems:
        allowed = " and ".join(names) or "nothing, as its InputTensor is not OWNED_BY_DML"
        raise field.invalid(f"{problems[0]}; it must bind {allowed}")
    if "InputTensor" in names and (count := len(entries["InputTensor"])) != 1:
        raise field.get("InputTensor").invalid(f"binds {count} resources; it must bind 1")


def _binding(field: Field, tensor: TensorDesc, resources: _Resources) -> Binding:
    """A binding: the name of a resource, or an object that may have an offset."""
    if isinstance(field.value, str):
        field = Field({"name": field.value}, field.path)
    # DxDispatch reads the count, too, and does nothing with it.
    names = ("elementCount", "elementSizeInBytes", "elementOffset")
    _, width, index = (field.optional(name, default=0).integer(0, UINT64_MAX) for name in names)
    resource = _lookup(field, "resource", field.get("name").text(), resources)
    offset = index * (width or resource.dtype.itemsize)
    resource_bytes = resource.size_in_bytes
    if offset > resource_bytes:
        start = f"elementOffset {index}, which is byte {offset} of {resource.name[:80]!r}"
        raise field.invalid(f"has {start}; the resource has {resource_bytes} bytes")
    size = min(resource_bytes - offset, tensor.total_tensor_size_in_bytes)
    return Binding(resource.name, offset, size)


def _command(
    field: Field, folder: Path, resources: _Resources, dispatchables: Mapping[str, Dispatchable]
) -> Command:
    """A command, which may name only what the model has."""
    command = field.get("type")
    match command.text().lower():
        case "dispatch":
            name = field.get("dispatchable").text()
            bindings = field.get("bindings")
            entry = _lookup(field, "dispatchable", name, dispatchables)
            if entry.desc is None:
                raise field.invalid(
                    f"dispatches {name[:80]!r}, a {entry.type[:80]!r}; only DML_OPERATOR_SPLIT is "
                    "supported"
                )
            return Dispatch(field.path, name, _bindings(bindings, entry.desc, resources, False))
        case "print":
            resource = _lookup(field, "resource", field.get("resource").text(), resources)
            return OutputCommand(field.path, resource.name, resource.values.size_in_bytes)
        case "writefile":
            return _write_file(field, folder, resources)
    raise command.error("'dispatch', 'print' or 'writeFile'")


def _write_file(field: Field, folder: Path, resources: _Resources) -> OutputCommand:
    """The command writeFile, with the shape that it declares for a .npy file."""
    name = field.get("targetPath")
    path = path_in(name, folder)
    if path.suffix.lower() in (".png", ".jpg"):
        raise name.error("a .npy or raw file, because images are not supported")
    dimensions = field.optional("dimensions", default=[]).items()
    shape = tuple(dimension.integer(0, UINT_MAX) for dimension in dimensions)
    resource = _lookup(field, "resource", field.get("resource").text(), resources)
    size = resource.size_in_bytes
    width = resource.dtype.itemsize
    if shape and prod(shape) > size // width:
        raise field.invalid(
            f"has dimensions {shown(shape)} of {prod(shape)} elements; the resource has "
            f"{size // width}"
        )
    if len(shape) > MAX_DIMENSIONS:
        raise field.invalid(
            f"has {len(shape)} dimensions; a .npy file has at most {MAX_DIMENSIONS}"
        )
    if shape and path.suffix.lower() == ".npy":
        size = prod(shape) * width
    return OutputCommand(field.path, resource.name, size, path, shape)


def _lookup(field: Field, noun: str, name: str, entries: Mapping[str, _Entry]) -> _Entry:
    """The entry that a field names; the error calls it a `noun`."""
    if name not in entries:
        names = cut_middle(shown(list(entries)), 400)
        allowed = f"it must be one of {names}" if entries else "there is none"
        raise field.invalid(
            f"names the {noun} {cut_middle(name, 80)!r}, which does not exist; {allowed}"
        )
    return entries[name]
