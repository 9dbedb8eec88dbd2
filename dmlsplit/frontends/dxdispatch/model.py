"""DxDispatch models as values: resources, dispatchables and commands.

Format: microsoft/DirectML, DxDispatch/doc/Guide.md and its parser, which also skips unknown fields.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path

import numpy as np

from dmlsplit.arrays.npy_header import MAX_DIMENSIONS
from dmlsplit.checks import file_name
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import UINT64_MAX, UINT_MAX, TensorDataType
from dmlsplit.errors import about
from dmlsplit.fields import Field
from dmlsplit.frontends.dxdispatch.descriptor import SPLIT_NAMES, read_split
from dmlsplit.frontends.dxdispatch.strict_json import read_json
from dmlsplit.frontends.dxdispatch.values import (
    LITTLE_ENDIAN,
    InitialValues,
    data_type_of,
    inside,
    read_values,
)
from dmlsplit.messages import shown

# A D3D12 buffer has at most 4 GiB. All resources together must fit in an ordinary machine.
MAX_RESOURCE_BYTES = 1 << 32
MAX_MODEL_BYTES = 1 << 33
# For all print commands together, before the bytes become text, which is several times as long.
MAX_PRINTED_BYTES = 64 << 20

_EXECUTION_FLAGS = dict.fromkeys(
    "NONE ALLOW_HALF_PRECISION_COMPUTATION DISABLE_META_COMMANDS DESCRIPTORS_VOLATILE".split()
)
_COMPILE_TYPES = {"DmlCompileOp": None, "DmlCompileGraph": None}


@dataclass(frozen=True, slots=True)
class Resource:
    """A buffer, and its initial values, which start at an offset."""

    name: str
    data_type: TensorDataType
    values: InitialValues
    offset_in_bytes: int
    size_in_bytes: int

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements; bytes if the model gives no type."""
        return LITTLE_ENDIAN.get(self.data_type, np.dtype(np.uint8))


@dataclass(frozen=True, slots=True)
class Binding:
    """A resource, bound from one of its elements to its end."""

    resource: str
    element_size_in_bytes: int = 0  # 0 means the size of the resource's data type
    element_offset: int = 0


_Resources = Mapping[str, Resource]
Bindings = tuple[tuple[str, tuple[Binding, ...]], ...]


@dataclass(frozen=True, slots=True)
class Dispatchable:
    """An operator to dispatch."""

    name: str
    type: str
    desc: SplitOperatorDesc | None  # None for other operators
    bindings: Bindings = ()  # for an OWNED_BY_DML input, at initialization


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The command that runs a dispatchable."""

    place: str
    dispatchable: str
    bindings: Bindings


@dataclass(frozen=True, slots=True)
class Print:
    """The command that prints a resource as a flat list."""

    resource: str
    verbose: bool


@dataclass(frozen=True, slots=True)
class WriteFile:
    """The command that writes a resource to a file; `dimensions` is the shape in a .npy file."""

    place: str
    resource: str
    path: Path
    dimensions: tuple[int, ...]
    is_npy: bool


Command = Dispatch | Print | WriteFile


@dataclass(frozen=True, slots=True)
class Model:
    """A DxDispatch model."""

    resources: tuple[Resource, ...]
    dispatchables: tuple[Dispatchable, ...]
    commands: tuple[Command, ...]


def load(path: str | PathLike[str]) -> Model:
    """Read a DxDispatch model.

    No resource is allocated; source files are checked, but not loaded.

    Parameters
    ----------
    path
        The .json file. The files that it names must be in its folder, or in a folder below.

    Raises
    ------
    InvalidArgumentError
        If the file is not such a model; the message names the field.
    """
    file = Path(file_name(path))
    with about(path):
        return _model(read_json(file), file.parent)


def _model(root: Field, folder: Path) -> Model:
    fields = root.get("resources")
    resources = {name: _resource(name, field, folder) for name, field in fields.members()}
    total = sum(resource.size_in_bytes for resource in resources.values())
    if total > MAX_MODEL_BYTES:
        raise fields.wrong(f"take {total} bytes in total; at most {MAX_MODEL_BYTES} are allowed")
    dispatchables = {}
    for name, field in root.get("dispatchables").members():
        dispatchables[name] = read_dispatchable(name, field)
        _check_bound(field, dispatchables[name].bindings, resources)
    commands = []
    to_print = 0
    for field in root.get("commands").items():
        command = _command(field, folder, resources, dispatchables)
        commands.append(command)
        if isinstance(command, Print):
            to_print += resources[command.resource].values.size_in_bytes
        if to_print > MAX_PRINTED_BYTES:
            raise field.wrong(
                f"makes the model print more than {MAX_PRINTED_BYTES >> 20} MiB. Fix: use writeFile"
            )
    return Model(tuple(resources.values()), tuple(dispatchables.values()), tuple(commands))


def read_dispatchable(name: str, field: Field) -> Dispatchable:
    """Read a dispatchable: a Split with its descriptor, another operator with its type only."""
    kind = field.get("type", "Type").text()
    if kind not in SPLIT_NAMES:
        return Dispatchable(name, kind, None)
    for flag in field.optional("executionFlags", default=[]).one_or_many():
        flag.one_of(_EXECUTION_FLAGS, "DML_EXECUTION_FLAG_")
    field.optional("dmlCompileType", default="DmlCompileOp").one_of(_COMPILE_TYPES, "")
    desc = read_split(field)
    return Dispatchable(name, kind, desc, _bindings(field.optional("bindings", default={})))


def _resource(name: str, field: Field, folder: Path) -> Resource:
    data_type = data_type_of(field.optional("initialValuesDataType", default="UNKNOWN"))
    data_type, values = read_values(field.get("initialValues"), data_type, folder)
    if values.size_in_bytes == 0:
        raise field.get("initialValues").wrong("is empty")
    offset = field.optional("initialValuesOffsetInBytes", default=0).integer(0, UINT64_MAX)
    rounded = (values.size_in_bytes + 3) // 4 * 4
    size = field.optional("sizeInBytes", default=rounded).integer(0, UINT64_MAX)
    if size > MAX_RESOURCE_BYTES:
        raise field.wrong(f"is a buffer of {size} bytes; at most {MAX_RESOURCE_BYTES} are allowed")
    if values.size_in_bytes + offset > size:
        raise field.wrong(
            f"has {values.size_in_bytes} bytes of initial values at offset {offset}; "
            f"its size is {size}"
        )
    return Resource(name, data_type, values, offset, size)


def _bindings(field: Field) -> Bindings:
    return tuple(
        (point, tuple(_binding(entry) for entry in entries.one_or_many()))
        for point, entries in field.members()
    )


def _binding(field: Field) -> Binding:
    if isinstance(field.value, str):
        return Binding(field.value)
    # As in DxDispatch, the count is read but has no effect.
    names = ("elementCount", "elementSizeInBytes", "elementOffset")
    _, size, offset = (field.optional(name, default=0).integer(0, UINT64_MAX) for name in names)
    return Binding(field.get("name").text(), size, offset)


def _command(
    field: Field, folder: Path, resources: _Resources, dispatchables: Container[str]
) -> Command:
    kind = field.get("type")
    match kind.text().lower():
        case "dispatch":
            name = field.get("dispatchable").text()
            bindings = _bindings(field.get("bindings"))
            _check_known(field, "dispatchable", name, dispatchables)
            _check_bound(field, bindings, resources)
            return Dispatch(field.path, name, bindings)
        case "print":
            verbose = field.optional("verbose", default=False).truth()
            resource = _resource_of(field, resources, is_typed=True)
            return Print(resource.name, verbose)
        case "writefile":
            return _write_file(field, folder, resources)
    raise kind.error("'dispatch', 'print' or 'writeFile'")


def _write_file(field: Field, folder: Path, resources: _Resources) -> WriteFile:
    name = field.get("targetPath")
    path = inside(name, folder)
    if path.suffix.lower() in (".png", ".jpg"):
        raise name.error("a .npy or raw file, because images are not supported")
    dimensions = field.optional("dimensions", default=[]).items()
    shape = tuple(dimension.integer(0, UINT_MAX) for dimension in dimensions)
    is_npy = path.suffix.lower() == ".npy"
    resource = _resource_of(field, resources, is_typed=is_npy)
    most = resource.size_in_bytes // resource.dtype.itemsize
    if shape and prod(shape) > most:
        raise field.wrong(
            f"has dimensions {shown(shape)} of {prod(shape)} elements; the resource has {most}"
        )
    if len(shape) > MAX_DIMENSIONS:
        raise field.wrong(f"has {len(shape)} dimensions; a .npy file has at most {MAX_DIMENSIONS}")
    return WriteFile(field.path, resource.name, path, shape, is_npy)


def _resource_of(field: Field, resources: _Resources, is_typed: bool) -> Resource:
    """The resource that a command names; with `is_typed`, it must have a data type."""
    name = field.get("resource").text()
    _check_known(field, "resource", name, resources)
    if is_typed and resources[name].data_type not in LITTLE_ENDIAN:
        raise field.wrong(
            f"names the resource {name[:80]!r}, which has no data type and can only be written as "
            "raw bytes"
        )
    return resources[name]


def _check_bound(field: Field, bindings: Bindings, resources: Container[str]) -> None:
    for _, bound in bindings:
        for binding in bound:
            _check_known(field, "resource", binding.resource, resources)


def _check_known(field: Field, what: str, name: str, known: Container[str]) -> None:
    if name not in known:
        raise field.wrong(f"names the {what} {name[:80]!r}, which does not exist")
