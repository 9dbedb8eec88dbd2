"""Ask a DirectML.dll which splits it accepts, and write its answers to a file: an observation.

This program needs 64-bit Windows, Python 3.8 or newer, and cases.json next to it. It creates and
compiles operators, and dispatches none.

THIS HAS NOT RUN ON WINDOWS YET: only on Linux, with a stand-in for DirectML.
"""

# A bad descriptor may crash or hang the library. The library is therefore called in a child
# process, this program with --child. When a child dies, the parent starts another for the
# remaining cases.
# ruff: noqa: B905, Python 3.8 has no zip(strict=True)

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import re
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Record = dict[str, Any]

SCHEMA = 2
ON_WINDOWS = sys.platform == "win32"
STAND_IN = b"dmlsplit stand-in for DirectML"
MARK = b"@dmlsplit "  # starts each line of a child; the library may print lines, too
LAST = ("crashed", "hung", "removed")  # outcomes that end a child

# ---- the binary interface ----------------------------------------------------------------------
# From DirectML.h and d3d12.h of https://github.com/microsoft/DirectX-Headers, and dxgi.h to
# dxgi1_4.h of the Windows SDK. Layouts are formats of `struct`, with the alignment of C.

BUFFER_TENSOR = "3I2PQI0P"  # type, flags, count, sizes, strides, TotalTensorSizeInBytes, alignment
TYPED = "IP"  # DML_TENSOR_DESC and DML_OPERATOR_DESC: type, address of the description
SPLIT = "PIPI0P"  # InputTensor, OutputCount, OutputTensors, Axis
LEVELS_QUERY = "IP"  # count, address
ADAPTER = "256s4I3N3I0P"  # name, vendor, device, SubSysId, Revision, memory, AdapterLuid, Flags
DATA_TYPES = (  # in the order of their values, from 0
    "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4"
).split()
FLAGS = {"NONE": 0, "OWNED_BY_DML": 1}
TENSOR_TYPE_BUFFER, OPERATOR_SPLIT = 1, 62
D3D_FEATURE_LEVEL_11_0, DML_FEATURE_LEVEL_1_0 = 0xB000, 0x1000
FAILED = 0x80000000  # the bit of an HRESULT that means failure
# DXGI_ERROR_DEVICE_REMOVED, _HUNG and _RESET: after these, the device's answers are meaningless.
REMOVED = (0x887A0005, 0x887A0006, 0x887A0007)
# The indices of methods in their tables, which start with the three of IUnknown.
RELEASE = 2
FACTORY_ENUM_ADAPTERS1, FACTORY_ENUM_WARP_ADAPTER, ADAPTER_GET_DESC1 = 12, 27, 10
DML_CHECK_FEATURE_SUPPORT, DML_CREATE_OPERATOR, DML_COMPILE_OPERATOR = 7, 8, 9

_stored: list[Any] = []  # never freed, because a child lives only for seconds


class UnusableError(Exception):
    """Nothing can be observed; the text says why."""


def stored(layout: str, *fields: Any) -> int:
    """Store a C structure; return its address."""
    _stored.append(ctypes.create_string_buffer(struct.pack(layout, *fields)))
    return ctypes.addressof(_stored[-1])


def room(layout: str) -> int:
    """Store a C structure of zeros; return its address."""
    return stored(f"{struct.calcsize(layout)}s", b"")


def read(layout: str, address: int) -> tuple[Any, ...]:
    """Read the fields of the C structure at an address."""
    return struct.unpack(layout, ctypes.string_at(address, struct.calcsize(layout)))


def _iid(text: str) -> int:
    return stored("16s", uuid.UUID(text).bytes_le)


IDXGI_FACTORY4 = _iid("1bc6ea02-ef36-464f-bf0c-21ca39e5168a")
IDXGI_ADAPTER1 = _iid("29038f61-3839-4626-91fd-086879011a05")
ID3D12_DEVICE = _iid("189819f1-1db6-4b57-be54-1821339b85f7")
IDML_DEVICE = _iid("6dbd6437-96fd-423f-a98c-ae5e7c2a573f")
IDML_OPERATOR = _iid("26caae7a-3081-4633-9581-226fbe57695d")
IDML_COMPILED_OPERATOR = _iid("6b15e56a-bf5c-4902-92d8-da3a650afea4")


def call(function: Any, *arguments: int) -> int:
    """Call a C function, given by its address or by its name and library."""
    # 64-bit Windows has a single calling convention, with 64 bits for every argument.
    return int(ctypes.CFUNCTYPE(ctypes.c_uint32)(function)(*map(ctypes.c_uint64, arguments)))


def method(this: int, place: int) -> Callable[..., int]:
    """A method of a COM object, by its place in the table."""
    (table,) = read("P", this)
    return partial(call, *read("P", table + struct.calcsize("P") * place), this)


def new(function: Callable[..., int], *arguments: int) -> tuple[int, int]:
    """Call a function that stores a new object at its last argument; return HRESULT and object."""
    place = room("P")
    return function(*arguments, place), read("P", place)[0]


def made(name: str, function: Callable[..., int], *arguments: int) -> int:
    """The new object of a call; an UnusableError names the function if it made none."""
    hresult, this = new(function, *arguments)
    if hresult & FAILED or not this:
        raise UnusableError(f"{name} returned 0x{hresult:08X}")
    return this


def operator_desc(fields: Record) -> int:
    """Store a DML_OPERATOR_DESC; return its address."""
    outputs = [part for tensor in fields["OutputTensors"] for part in _tensor_desc(tensor)]
    source = stored(TYPED, *_tensor_desc(fields["InputTensor"]))
    results = stored(TYPED * (len(outputs) // 2), *outputs)
    split = stored(SPLIT, source, fields["OutputCount"], results, fields["Axis"])
    return stored(TYPED, OPERATOR_SPLIT, split)


def _tensor_desc(fields: Record) -> tuple[int, int]:
    kind, flags = DATA_TYPES.index(fields["DataType"]), FLAGS[fields["Flags"]]
    sizes, strides = (
        0 if values is None else stored(f"{len(values)}I", *values)
        for values in (fields["Sizes"], fields.get("Strides"))
    )
    ends = fields["TotalTensorSizeInBytes"], fields["GuaranteedBaseOffsetAlignment"]
    tensor = stored(BUFFER_TENSOR, kind, flags, fields["DimensionCount"], sizes, strides, *ends)
    return TENSOR_TYPE_BUFFER, tensor


# ---- the child: asks one device, case by case --------------------------------------------------


def device_on(directml: str, adapter: str) -> tuple[int, str]:
    """A DirectML device on an adapter, and the name of the adapter."""

    def exported(source: str, name: str, *arguments: int) -> int:
        try:  # a stand-in replaces all three libraries
            library = ctypes.CDLL(source if ON_WINDOWS else directml)
        except OSError as error:
            raise UnusableError(f"{source} cannot be loaded: {error}") from None
        return made(name, partial(call, (name, library)), *arguments)

    factory = exported("dxgi.dll", "CreateDXGIFactory2", 0, IDXGI_FACTORY4)
    name, place, which = "EnumWarpAdapter", FACTORY_ENUM_WARP_ADAPTER, IDXGI_ADAPTER1
    if adapter != "warp":
        name, place, which = f"EnumAdapters1({adapter})", FACTORY_ENUM_ADAPTERS1, int(adapter)
    chosen, desc = made(name, method(factory, place), which), room(ADAPTER)
    method(chosen, ADAPTER_GET_DESC1)(desc)
    shown = read(ADAPTER, desc)[0].decode("utf-16-le", "replace").partition("\0")[0]
    d3d = exported("d3d12.dll", "D3D12CreateDevice", chosen, D3D_FEATURE_LEVEL_11_0, ID3D12_DEVICE)
    least = DML_FEATURE_LEVEL_1_0
    return exported(directml, "DMLCreateDevice1", d3d, 0, least, IDML_DEVICE), shown


def device_record(device: int, adapter: str, levels: list[int]) -> Record:
    """The adapter, the highest feature level of the device, and the data types that it has."""
    levels_query = (LEVELS_QUERY, len(levels), stored(f"{len(levels)}I", *levels))
    # The oldest libraries do not know this query.
    level = _feature(device, 1, *levels_query) or DML_FEATURE_LEVEL_1_0
    types = {name: bool(_feature(device, 0, "I", at)) for at, name in enumerate(DATA_TYPES) if at}
    return {"adapter": adapter, "level": level, "data_types": types}


def _feature(device: int, feature: int, layout: str, *query: int) -> int:
    answer, size = room("I"), struct.calcsize(layout)
    check = method(device, DML_CHECK_FEATURE_SUPPORT)
    return 0 if check(feature, size, stored(layout, *query), 4, answer) else read("I", answer)[0]


def ask_case(device: int, case: Record) -> Record:
    """The answer to a case: create its operator, and compile it unless it is too large."""
    stage, compiled, desc = "create", 0, operator_desc(case["desc"])
    hresult, operator = new(method(device, DML_CREATE_OPERATOR), desc, IDML_OPERATOR)
    if not hresult & FAILED and case["last_stage"] == "compile":
        stage, compile_ = "compile", method(device, DML_COMPILE_OPERATOR)
        hresult, compiled = new(compile_, operator, 0, IDML_COMPILED_OPERATOR)
    for this in filter(None, (compiled, operator)):
        method(this, RELEASE)()
    refused = "removed" if hresult in REMOVED else "refused"
    outcome = refused if hresult & FAILED else "accepted"
    return {"outcome": outcome, "stage": stage, "hresult": f"0x{hresult:08X}"}


def emit(record: Record) -> None:
    """Send a line to the parent."""
    sys.stdout.write(f"\n{MARK.decode()}{json.dumps(record)}\n")
    sys.stdout.flush()


def child() -> None:
    """Read the settings and cases from standard input; describe the device, answer each case."""
    asked = json.loads(sys.stdin.read())
    if ON_WINDOWS:
        ctypes.CDLL("kernel32").SetErrorMode(3)  # no dialogs about crashes
    try:
        device, adapter = device_on(asked["directml"], asked["adapter"])
    except UnusableError as error:
        emit({"unusable": str(error)})
        return
    emit(device_record(device, adapter, asked["levels"]))
    for case in asked["cases"]:
        emit(ask_case(device, case))
    os._exit(0)  # skip the teardown of the DLLs, because it is not under test


# ---- the parent: starts children until every case has an answer --------------------------------


def ask(settings: Record, cases: list[Record], timeout: float) -> tuple[Record, list[Record]]:
    """Ask about each case; return the record of the device, and the answers.

    If a process ends at its first case, that case is the cause. Any other case is asked again in a
    new process, and `after_others` in its answer says how the earlier process ended.
    """
    device: Record = {}
    answers: list[Record] = []
    before: Record = {}
    while len(answers) < len(cases):
        device, *found = _from_child({**settings, "cases": cases[len(answers) :]}, timeout)
        if "level" not in device:
            ended = f"no device was created: the library {device.get('outcome')}"
            raise UnusableError(device.get("unusable", ended))
        found[0].update(before)
        before = {}
        if len(found) > 1 and found[-1]["outcome"] in LAST:
            before = {"after_others": found.pop()["outcome"]}
        answers += found
    return device, answers


def _from_child(asked: Record, timeout: float) -> list[Record]:
    """A child's record of the device and its answers, up to an outcome of LAST."""
    line, end = [sys.executable, "-B", str(Path(__file__).resolve()), "--child"], "crashed"
    given: Any = {"input": json.dumps(asked).encode(), "stderr": subprocess.DEVNULL}
    try:
        out = subprocess.run(line, stdout=subprocess.PIPE, timeout=timeout, **given).stdout
    except subprocess.TimeoutExpired as late:
        out, end = late.stdout or b"", "hung"
    found = [json.loads(line[len(MARK) :]) for line in out.splitlines() if line.startswith(MARK)]
    ends = (at for at, answer in enumerate(found) if answer.get("outcome") == "removed")
    found = found[: next(ends, len(found)) + 1]
    is_over = found and ("unusable" in found[0] or found[-1].get("outcome") == "removed")
    return found if is_over or len(found) > len(asked["cases"]) else [*found, {"outcome": end}]


def observe(cases: Path, directml: Path, adapter: str, timeout: float) -> Record:
    """Ask a library about every case of a kit."""
    kit, data = json.loads(cases.read_text("utf-8")), directml.read_bytes()
    if adapter != "warp" and not adapter.isdecimal():
        raise UnusableError(f"--adapter is {adapter!r}; it must be warp or a number such as 0")
    if struct.calcsize("P") != 8:
        raise UnusableError("this Python is a 32-bit one. Fix: use a 64-bit Python")
    if not ON_WINDOWS and STAND_IN not in data:
        raise UnusableError(f"{directml}: DirectML's licence allows its use on Windows only")
    settings = {"directml": str(directml.resolve()), "adapter": adapter, "levels": kit["levels"]}
    device, answers = ask(settings, kit["cases"], timeout)
    head = {"schema": SCHEMA, "date": time.strftime("%Y-%m-%d", time.gmtime()), **device}
    head.update(directml=library_record(data), system=f"{platform.system()} {platform.version()}")
    return {**head, "cases": [{**case, **said} for case, said in zip(kit["cases"], answers)]}


def library_record(data: bytes) -> Record:
    """The record of a library: its SHA-256 and file version."""
    # The resource VS_VERSION_INFO is its name, then VS_FIXEDFILEINFO (signature, version).
    name = re.escape("VS_VERSION_INFO\0".encode("utf-16-le"))
    found = re.search(name + rb".{0,4}?\xbd\x04\xef\xfe.{4}(.{8})", data, re.DOTALL)
    second, first, fourth, third = struct.unpack("<4H", found[1] if found else bytes(8))
    version = f"{first}.{second}.{third}.{fourth}" if found else "of unknown version"
    sha256 = hashlib.sha256(data).hexdigest()
    return {"version": version, "sha256": sha256, "stand_in": STAND_IN in data}


def main() -> int:
    """Run the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--directml", type=Path, required=True, metavar="PATH")
    parser.add_argument("--adapter", default="warp", help="warp (default), or a number from 0")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of a process")
    beside = Path(__file__).resolve().with_name("cases.json")
    parser.add_argument("--cases", type=Path, default=beside, help="default: next to this file")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OBSERVED.json")
    given = vars(parser.parse_args())
    output = given.pop("output")
    try:
        if output.exists():
            raise UnusableError(f"{output} exists; it is not replaced. Fix: name a new file")
        found = observe(**given)
        output.write_text(json.dumps(found, indent=1) + "\n")
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}\n")
        return 2
    except (UnusableError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{output}: level 0x{found['level']:X}, {len(found['cases'])} cases\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        child()
    else:
        sys.exit(main())
