"""Ask one DirectML.dll about splits: a program of its own, because a bad descriptor may end it.

Python 3.8 or newer on 64-bit Windows, and nothing else. What is asked comes on standard input, and
a line for each answer goes to standard output. Nothing is dispatched: only CreateOperator and
CompileOperator are called.

**This has not run on Windows yet**: only on Linux, with a stand-in for DirectML that has its binary
interface.

Structures and the order of methods: DirectML.h, d3d12.h, d3d12sdklayers.h of
https://github.com/microsoft/DirectX-Headers; dxgi.h to dxgi1_4.h of the Windows SDK.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import uuid
from ctypes import POINTER, addressof, c_char_p, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Dict  # noqa: UP035, Python 3.8

PROGRAM = Path(__file__).resolve()
ON_WINDOWS = sys.platform == "win32"
MARK = "@dmlsplit "  # begins the lines of a child; a library may print others
MOST_MESSAGES, MOST_TEXT = 16, 1000
LEVELS = (
    0x1000, 0x2000, 0x2100, 0x3000, 0x3100, 0x4000, 0x4100, 0x5000, 0x5100, 0x5200,
    0x6000, 0x6100, 0x6200, 0x6300, 0x6400,
)  # fmt: skip
# By their values, from 0: DML_TENSOR_DATA_TYPE.
DATA_TYPES = (
    "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4"
).split()
FLAGS = {"NONE": 0, "OWNED_BY_DML": 1}
TENSOR_TYPE_BUFFER, OPERATOR_SPLIT = 1, 62
# DXGI_ERROR_DEVICE_REMOVED, _HUNG and _RESET: no later answer of the device means anything.
REMOVED = (0x887A0005, 0x887A0006, 0x887A0007)
D3D_FEATURE_LEVEL_11_0 = 0xB000

Record = Dict[str, Any]  # noqa: UP006, Python 3.8


class UnusableError(Exception):
    """There is no device to ask, for the reason that the text gives."""


class BufferTensorDesc(ctypes.Structure):
    """DML_BUFFER_TENSOR_DESC."""

    _fields_ = (
        ("DataType", c_uint32),
        ("Flags", c_uint32),
        ("DimensionCount", c_uint32),
        ("Sizes", POINTER(c_uint32)),
        ("Strides", POINTER(c_uint32)),
        ("TotalTensorSizeInBytes", c_uint64),
        ("GuaranteedBaseOffsetAlignment", c_uint32),
    )


class TypedDesc(ctypes.Structure):
    """DML_TENSOR_DESC and DML_OPERATOR_DESC."""

    _fields_ = (("Type", c_uint32), ("Desc", c_void_p))


class SplitDesc(ctypes.Structure):
    """DML_SPLIT_OPERATOR_DESC."""

    _fields_ = (
        ("InputTensor", POINTER(TypedDesc)),
        ("OutputCount", c_uint32),
        ("OutputTensors", POINTER(TypedDesc)),
        ("Axis", c_uint32),
    )


class LevelsQuery(ctypes.Structure):
    """DML_FEATURE_QUERY_FEATURE_LEVELS."""

    _fields_ = (("Count", c_uint32), ("Levels", POINTER(c_uint32)))


class AdapterDesc(ctypes.Structure):
    """DXGI_ADAPTER_DESC1."""

    _fields_ = (
        ("Description", c_uint16 * 128),
        ("Ids", c_uint32 * 4),  # VendorId, DeviceId, SubSysId, Revision
        ("Memory", c_size_t * 3),
        ("AdapterLuid", c_uint32 * 2),
        ("Flags", c_uint32),
    )


class Message(ctypes.Structure):
    """D3D12_MESSAGE."""

    _fields_ = (
        ("Category", c_uint32),
        ("Severity", c_uint32),
        ("Id", c_uint32),
        ("Description", c_char_p),
        ("DescriptionByteLength", c_size_t),
    )


def _iid(text: str) -> Any:
    return (ctypes.c_ubyte * 16)(*uuid.UUID(text).bytes_le)


IDXGI_FACTORY4 = _iid("1bc6ea02-ef36-464f-bf0c-21ca39e5168a")
IDXGI_ADAPTER1 = _iid("29038f61-3839-4626-91fd-086879011a05")
IDXGI_DEVICE = _iid("54ec77fa-1377-44e6-8c32-88fd5f44c84c")
ID3D12_DEVICE = _iid("189819f1-1db6-4b57-be54-1821339b85f7")
ID3D12_DEBUG = _iid("344488b7-6846-474b-b989-f027448245e0")
ID3D12_INFO_QUEUE = _iid("0742a90b-c387-483f-b946-30a7e4e61458")
IDML_DEVICE = _iid("6dbd6437-96fd-423f-a98c-ae5e7c2a573f")
IDML_OPERATOR = _iid("26caae7a-3081-4633-9581-226fbe57695d")
IDML_COMPILED_OPERATOR = _iid("6b15e56a-bf5c-4902-92d8-da3a650afea4")

# Places in the tables of methods, where IUnknown's three come first.
QUERY_INTERFACE, RELEASE = 0, 2
FACTORY_ENUM_ADAPTERS1, FACTORY_ENUM_WARP_ADAPTER = 12, 27
ADAPTER_CHECK_INTERFACE_SUPPORT, ADAPTER_GET_DESC1 = 9, 10
DEBUG_ENABLE_LAYER = 3
QUEUE_CLEAR, QUEUE_GET_MESSAGE, QUEUE_COUNT = 4, 5, 8
DML_CHECK_FEATURE_SUPPORT, DML_CREATE_OPERATOR, DML_COMPILE_OPERATOR = 7, 8, 9

_PROTOTYPE = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)


def at(value: Any) -> c_void_p:
    """Return the address of a ctypes object, which the caller keeps alive."""
    return c_void_p(addressof(value))


def call(this: c_void_p, slot: int, *arguments: Any, returns: Any = c_uint32) -> Any:
    """Call a method of a COM object."""
    methods = ctypes.cast(this, POINTER(POINTER(c_void_p)))[0]
    types = [type(argument) for argument in arguments]
    method = _PROTOTYPE(returns, c_void_p, *types)(methods[slot])
    return method(this, *arguments)


def export(library: Any, name: str, *arguments: Any) -> int:
    """Call a function that a library exports and that returns an HRESULT."""
    types = [type(argument) for argument in arguments]
    return int(_PROTOTYPE(c_uint32, *types)((name, library))(*arguments))


def made(what: str, hresult: int, value: c_void_p) -> c_void_p:
    """Return a new object."""
    if hresult & 0x80000000 or not value:
        raise UnusableError(f"{what} returned 0x{hresult:08X}")
    return value


# ---- the child: one device, asked case by case -------------------------------------------------


class Libraries:
    """DirectML, and the D3D12 device that it works on."""

    def __init__(self, directml: str, adapter: str, debug: bool) -> None:
        loader = ctypes.WinDLL if ON_WINDOWS else ctypes.CDLL  # type: ignore[attr-defined,unused-ignore]
        try:
            self.directml = loader(directml)
            self.d3d12, self.dxgi = self.directml, self.directml  # a stand-in is all three
            if ON_WINDOWS:
                self.d3d12, self.dxgi = loader("d3d12.dll"), loader("dxgi.dll")
        except OSError as error:
            raise UnusableError(f"{directml} cannot be loaded: {error}") from None
        self.debug, self.messages = debug, c_void_p()
        if debug:
            layer = c_void_p()
            found = export(self.d3d12, "D3D12GetDebugInterface", at(ID3D12_DEBUG), at(layer))
            call(made("D3D12GetDebugInterface", found, layer), DEBUG_ENABLE_LAYER, returns=None)
        self.adapter = self._adapter(adapter)
        self.device = c_void_p()
        wanted = (c_uint32(D3D_FEATURE_LEVEL_11_0), at(ID3D12_DEVICE), at(self.device))
        found = export(self.d3d12, "D3D12CreateDevice", self.adapter, *wanted)
        made("D3D12CreateDevice", found, self.device)
        if debug:
            call(self.device, QUERY_INTERFACE, at(ID3D12_INFO_QUEUE), at(self.messages))

    def _adapter(self, name: str) -> c_void_p:
        factory, adapter = c_void_p(), c_void_p()
        given = (c_uint32(0), at(IDXGI_FACTORY4), at(factory))
        found = export(self.dxgi, "CreateDXGIFactory2", *given)
        made("CreateDXGIFactory2", found, factory)
        if name == "warp":
            found = call(factory, FACTORY_ENUM_WARP_ADAPTER, at(IDXGI_ADAPTER1), at(adapter))
            return made("EnumWarpAdapter", found, adapter)
        found = call(factory, FACTORY_ENUM_ADAPTERS1, c_uint32(int(name)), at(adapter))
        return made(f"EnumAdapters1({name})", found, adapter)

    def create(self, level: int) -> tuple[int, c_void_p]:
        """Call DMLCreateDevice1, or in the oldest DLLs, which lack it, DMLCreateDevice."""
        device = c_void_p()
        given = (self.device, c_uint32(1 if self.debug else 0))
        wanted = (at(IDML_DEVICE), at(device))
        if hasattr(self.directml, "DMLCreateDevice1"):
            found = export(self.directml, "DMLCreateDevice1", *given, c_uint32(level), *wanted)
        else:
            found = export(self.directml, "DMLCreateDevice", *given, *wanted)
        return found, device

    def said(self) -> list[str]:
        """Return what the debug layer has said since it was last asked."""
        texts = []
        if self.messages:
            count = call(self.messages, QUEUE_COUNT, returns=c_uint64)
            for index in range(min(count, MOST_MESSAGES)):
                size = c_size_t()
                call(self.messages, QUEUE_GET_MESSAGE, c_uint64(index), c_void_p(), at(size))
                buffer = ctypes.create_string_buffer(max(size.value, ctypes.sizeof(Message)))
                call(self.messages, QUEUE_GET_MESSAGE, c_uint64(index), at(buffer), at(size))
                text = Message.from_buffer(buffer).Description or b""
                texts.append(text.decode("utf-8", "replace")[:MOST_TEXT])
            call(self.messages, QUEUE_CLEAR, returns=None)
        return texts


def adapter_record(adapter: c_void_p) -> Record:
    """Return what DXGI says of an adapter."""
    desc, driver = AdapterDesc(), c_uint64()
    call(adapter, ADAPTER_GET_DESC1, at(desc))
    call(adapter, ADAPTER_CHECK_INTERFACE_SUPPORT, at(IDXGI_DEVICE), at(driver))
    name = bytes(desc.Description).decode("utf-16-le", "replace").partition("\0")[0]
    version = struct.unpack(">4H", struct.pack(">Q", driver.value))
    return {
        "name": name,
        "vendor": desc.Ids[0],
        "device": desc.Ids[1],
        "driver": ".".join(map(str, version)),
        "software": bool(desc.Flags & 2),
    }


def highest_level(device: c_void_p) -> int:
    """Return the highest feature level; DLLs that do not know the question have 1_0."""
    levels, highest = (c_uint32 * len(LEVELS))(*LEVELS), c_uint32()
    query = LevelsQuery(len(LEVELS), levels)
    given = (c_uint32(1), c_uint32(ctypes.sizeof(query)), at(query), c_uint32(4), at(highest))
    return LEVELS[0] if call(device, DML_CHECK_FEATURE_SUPPORT, *given) else int(highest.value)


def supports_type(device: c_void_p, kind: int) -> bool:
    """Return whether the device has a data type at all."""
    query, found = c_uint32(kind), c_uint32()
    given = (c_uint32(0), c_uint32(4), at(query), c_uint32(4), at(found))
    return call(device, DML_CHECK_FEATURE_SUPPORT, *given) == 0 and bool(found.value)


def tensor_desc(fields: Record, kept: list[Any]) -> TypedDesc:
    """Return a DML_TENSOR_DESC; what it points to is added to `kept`."""
    sizes, strides = fields["Sizes"], fields.get("Strides")
    room = max(1, len(sizes))
    buffer = BufferTensorDesc(
        DATA_TYPES.index(fields["DataType"]),
        FLAGS[fields["Flags"]],
        fields["DimensionCount"],
        (c_uint32 * room)(*sizes),
        None if strides is None else (c_uint32 * room)(*strides),
        fields["TotalTensorSizeInBytes"],
        fields["GuaranteedBaseOffsetAlignment"],
    )
    kept.append(buffer)
    return TypedDesc(TENSOR_TYPE_BUFFER, addressof(buffer))


def operator_desc(fields: Record, kept: list[Any]) -> TypedDesc:
    """Return a DML_OPERATOR_DESC; what it points to is added to `kept`."""
    outputs = [tensor_desc(tensor, kept) for tensor in fields["OutputTensors"]]
    given = tensor_desc(fields["InputTensor"], kept)
    split = SplitDesc(
        ctypes.pointer(given),
        fields["OutputCount"],
        (TypedDesc * max(1, len(outputs)))(*outputs),
        fields["Axis"],
    )
    kept += [given, split]
    return TypedDesc(OPERATOR_SPLIT, addressof(split))


def ask_case(libraries: Libraries, device: c_void_p, case: Record) -> Record:
    """Create the operator of a case, and compile it unless it is too large for that."""
    kept: list[Any] = []
    desc, operator, compiled = operator_desc(case["desc"], kept), c_void_p(), c_void_p()
    stage = "create"
    found = call(device, DML_CREATE_OPERATOR, at(desc), at(IDML_OPERATOR), at(operator))
    if not found & 0x80000000 and case["last_stage"] == "compile":
        stage = "compile"
        given = (operator, c_uint32(0), at(IDML_COMPILED_OPERATOR), at(compiled))
        found = call(device, DML_COMPILE_OPERATOR, *given)
    for value in (compiled, operator):
        if value:
            call(value, RELEASE)
    outcome = "refused" if found & 0x80000000 else "accepted"
    outcome = "removed" if found in REMOVED else outcome
    answer = {"outcome": outcome, "stage": stage, "hresult": f"0x{found:08X}"}
    said = libraries.said()
    return {**answer, "debug": said} if said else answer


def ask_level(libraries: Libraries, level: int) -> Record:
    """Ask for a device with a least feature level, and for the level that it then has."""
    found, device = libraries.create(level)
    answer: Record = {"hresult": f"0x{found:08X}", "level": None}
    if not found & 0x80000000 and device:
        answer["level"] = highest_level(device)
        call(device, RELEASE)
    return answer


def emit(record: Record) -> None:
    """Send a line to the parent."""
    sys.stdout.write(f"\n{MARK}{json.dumps(record)}\n")
    sys.stdout.flush()


def child() -> None:
    """Answer what standard input asks, a line for each."""
    asked = json.loads(sys.stdin.read())
    if ON_WINDOWS:
        ctypes.WinDLL("kernel32").SetErrorMode(3)  # type: ignore[attr-defined,unused-ignore]
    try:
        libraries = Libraries(asked["directml"], asked["adapter"], asked["debug"])
        device = made("DMLCreateDevice1", *libraries.create(LEVELS[0]))
    except UnusableError as error:
        emit({"unusable": str(error)})
        return
    types = {name: supports_type(device, kind) for kind, name in enumerate(DATA_TYPES) if kind}
    adapter = adapter_record(libraries.adapter)
    libraries.said()
    emit({"adapter": adapter, "level": highest_level(device), "data_types": types})
    for item in asked["items"]:
        is_level = isinstance(item, int)
        emit(ask_level(libraries, item) if is_level else ask_case(libraries, device, item))
    os._exit(0)  # not through the library's own end, which is not what is asked


if __name__ == "__main__" and sys.argv[1:] == ["--child"]:
    child()
    sys.exit()
