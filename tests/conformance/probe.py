"""Ask a DirectML.dll which splits it accepts, and write its answers to a file: an observation.

This program needs 64-bit Windows, Python 3.8 or newer, and cases.json next to it. It creates and
compiles operators, and dispatches none.

THIS HAS NOT RUN ON WINDOWS YET: only on Linux, with a stand-in for DirectML.
"""

# A bad descriptor may crash or hang the library. `child` therefore calls it in another process, and
# `ask` starts a new process when one has ended.

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import multiprocessing
import platform
import struct
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

SCHEMA = 2
ON_WINDOWS = sys.platform == "win32"
STAND_IN = b"dmlsplit stand-in for DirectML"
ANSWERS = ("accepted", "refused")  # any other outcome ends a child
SPAWN = multiprocessing.get_context("spawn")

# From DirectML.h and d3d12.h of https://github.com/microsoft/DirectX-Headers, and dxgi.h to
# dxgi1_4.h of the Windows SDK. Layouts are formats of `struct`, with the alignment of C.
BUFFER_TENSOR = "3I2PQI0P"  # type, flags, count, sizes, strides, TotalTensorSizeInBytes, alignment
TYPED = "IP"  # DML_TENSOR_DESC and DML_OPERATOR_DESC: type, address of the description
SPLIT = "PIPI0P"  # InputTensor, OutputCount, OutputTensors, Axis
DATA_TYPES = (  # in the order of their values, from 0
    "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4"
).split()
TENSOR_TYPE_BUFFER, OPERATOR_SPLIT = 1, 62
D3D_FEATURE_LEVEL_11_0, DML_FEATURE_LEVEL_1_0 = 0xB000, 0x1000
FAILED = 0x80000000  # the bit of an HRESULT that means failure
# DXGI_ERROR_DEVICE_REMOVED, _HUNG and _RESET: after these, the device's answers are meaningless.
REMOVED = (0x887A0005, 0x887A0006, 0x887A0007)
# The indices of methods in the tables of their classes.
METHODS = {"EnumAdapters1": 12, "EnumWarpAdapter": 27, "GetDesc1": 10}
METHODS.update(CheckFeatureSupport=7, CreateOperator=8, CompileOperator=9)
IDXGI_FACTORY4 = UUID("1bc6ea02-ef36-464f-bf0c-21ca39e5168a").bytes_le
IDXGI_ADAPTER1 = UUID("29038f61-3839-4626-91fd-086879011a05").bytes_le
ID3D12_DEVICE = UUID("189819f1-1db6-4b57-be54-1821339b85f7").bytes_le
IDML_DEVICE = UUID("6dbd6437-96fd-423f-a98c-ae5e7c2a573f").bytes_le
IDML_OPERATOR = UUID("26caae7a-3081-4633-9581-226fbe57695d").bytes_le
IDML_COMPILED_OPERATOR = UUID("6b15e56a-bf5c-4902-92d8-da3a650afea4").bytes_le

# 64-bit Windows has a single calling convention.
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_uint32)
_stored: list[Any] = []  # nothing is freed, because a child lives only for seconds


def stored(layout: str, *fields: Any) -> int:
    """Store a C structure; return its address."""
    _stored.append(ctypes.create_string_buffer(struct.pack(layout, *fields)))
    return ctypes.addressof(_stored[-1])


def call(owner: Any, name: str, *arguments: Any) -> int:
    """Call a function of a library, or a method of a COM object; return its HRESULT."""
    if isinstance(owner, ctypes.CDLL):
        return int(FUNCTION((name, owner))(*arguments))
    table = ctypes.cast(owner, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    return int(FUNCTION(table[METHODS[name]])(owner, *arguments))


def new(owner: Any, name: str, *arguments: Any) -> tuple[int, ctypes.c_void_p]:
    """Call what stores a new object at its last argument; return the HRESULT and the object."""
    interface = ctypes.c_void_p()
    return call(owner, name, *arguments, ctypes.byref(interface)), interface


def operator_desc(fields: dict[str, Any]) -> bytes:
    # A DML_OPERATOR_DESC, whose DML_TENSOR_DESCs have 16 bytes each.
    source, *outputs = map(_tensor_desc, (fields["InputTensor"], *fields["OutputTensors"]))
    tensors = stored("16s", source), fields["OutputCount"], stored("16s" * len(outputs), *outputs)
    return struct.pack(TYPED, OPERATOR_SPLIT, stored(SPLIT, *tensors, fields["Axis"]))


def _tensor_desc(fields: dict[str, Any]) -> bytes:
    kind, flags = DATA_TYPES.index(fields["DataType"]), fields["Flags"] == "OWNED_BY_DML"
    count, numbers = fields["DimensionCount"], f"{fields['DimensionCount']}I"
    sizes = stored(numbers, *fields["Sizes"])
    strides = stored(numbers, *fields["Strides"]) if "Strides" in fields else 0
    ends = fields["TotalTensorSizeInBytes"], fields["GuaranteedBaseOffsetAlignment"]
    buffer = stored(BUFFER_TENSOR, kind, flags, count, sizes, strides, *ends)
    return struct.pack(TYPED, TENSOR_TYPE_BUFFER, buffer)


def device_on(directml: str, adapter: str) -> tuple[ctypes.c_void_p, str]:
    """A DirectML device on an adapter, and the name of the adapter."""

    def interface_of(owner: Any, name: str, *arguments: Any) -> ctypes.c_void_p:
        hresult, interface = new(owner, name, *arguments)
        if hresult & FAILED or not interface:
            raise RuntimeError(f"{name} returned 0x{hresult:08X}")
        return interface

    names = ("dxgi.dll", "d3d12.dll", directml) if ON_WINDOWS else [directml] * 3
    dxgi, d3d12, dml = map(ctypes.CDLL, names)  # a stand-in is all three
    factory = interface_of(dxgi, "CreateDXGIFactory2", 0, IDXGI_FACTORY4)
    if adapter == "warp":
        dxgi_adapter = interface_of(factory, "EnumWarpAdapter", IDXGI_ADAPTER1)
    else:
        dxgi_adapter = interface_of(factory, "EnumAdapters1", int(adapter))
    desc = ctypes.create_string_buffer(312)  # DXGI_ADAPTER_DESC1, which begins with the name
    call(dxgi_adapter, "GetDesc1", desc)
    name = desc.raw[:256].decode("utf-16-le", "replace").partition("\0")[0]
    d3d = interface_of(
        d3d12, "D3D12CreateDevice", dxgi_adapter, D3D_FEATURE_LEVEL_11_0, ID3D12_DEVICE
    )
    return interface_of(dml, "DMLCreateDevice1", d3d, 0, DML_FEATURE_LEVEL_1_0, IDML_DEVICE), name


def device_record(device: ctypes.c_void_p, adapter: str, levels: list[int]) -> dict[str, Any]:
    """The adapter, the highest feature level of the device, and the data types that it has."""

    def supported(feature: int, layout: str, *fields: int) -> int:
        query, answer = struct.pack(layout, *fields), ctypes.c_uint32()
        query_arguments = feature, len(query), query, ctypes.sizeof(answer), ctypes.byref(answer)
        return 0 if call(device, "CheckFeatureSupport", *query_arguments) else answer.value

    # The oldest libraries do not know the query of the level.
    level = supported(1, "IP", len(levels), stored(f"{len(levels)}I", *levels))
    types = {
        name: bool(supported(0, "I", number)) for number, name in enumerate(DATA_TYPES) if number
    }
    return {"adapter": adapter, "level": level or DML_FEATURE_LEVEL_1_0, "data_types": types}


def ask_case(device: ctypes.c_void_p, case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a case: create its operator, and compile it unless it is too large."""
    stage, desc = "create", operator_desc(case["desc"])
    hresult, operator = new(device, "CreateOperator", desc, IDML_OPERATOR)
    if not hresult & FAILED and case["last_stage"] == "compile":
        stage = "compile"
        hresult, _ = new(device, "CompileOperator", operator, 0, IDML_COMPILED_OPERATOR)
    outcome = "removed" if hresult in REMOVED else "refused" if hresult & FAILED else "accepted"
    return {"outcome": outcome, "stage": stage, "hresult": f"0x{hresult:08X}"}


def child(pipe: Connection) -> None:
    """Send the record of a device, then the answer to each case that arrives."""
    if ON_WINDOWS:
        ctypes.CDLL("kernel32").SetErrorMode(3)  # no dialogs about crashes
    settings = pipe.recv()
    try:
        device, name = device_on(settings["directml"], settings["adapter"])
    except (OSError, RuntimeError) as error:
        pipe.send({"outcome": str(error)})
        return
    pipe.send(device_record(device, name, settings["levels"]))
    while True:
        pipe.send(ask_case(device, pipe.recv()))


def ask(settings: dict[str, Any], cases: list[Any], timeout: float) -> tuple[Any, list[Any]]:
    """Ask about each case; return the record of the device, and the cases with the answers.

    If a process ends at its first case, that case is the cause. Any other case is asked again in a
    new process, and `after_others` in its answer says how the earlier process ended.
    """
    device, answers, before = {}, [], {}
    while len(answers) < len(cases):
        device, *new_answers = _from_child([settings, *cases[len(answers) :]], timeout)
        if not new_answers:
            raise RuntimeError("{directml} on adapter {adapter}: {outcome}".format(**device))
        new_answers[0].update(before)
        is_asked_again = len(new_answers) > 1 and new_answers[-1]["outcome"] not in ANSWERS
        before = {"after_others": new_answers.pop()["outcome"]} if is_asked_again else {}
        answers += new_answers
    return device, answers


def _from_child(questions: list[dict[str, Any]], timeout: float) -> Iterator[Any]:
    """The questions with the answers of a child; the last answer may be how the child ended."""
    parent_end, child_end = SPAWN.Pipe()
    process = SPAWN.Process(target=child, args=(child_end,), daemon=True)
    process.start()
    child_end.close()  # so that `parent_end` ends with the child
    for question in questions:
        try:
            parent_end.send(question)
            answer = parent_end.recv() if parent_end.poll(timeout) else {"outcome": "hung"}
        except (EOFError, OSError):
            answer = {"outcome": "crashed"}
        yield {**question, **answer}
        if answer.get("outcome", "accepted") not in ANSWERS:
            break
    process.kill()


def observe(directml: Path, adapter: str, timeout: float) -> dict[str, Any]:
    """Ask a library about every case of the kit."""
    kit = json.loads(Path(__file__).with_name("cases.json").read_text("utf-8"))
    data = directml.read_bytes()
    if adapter != "warp" and not adapter.isdecimal():
        raise ValueError(f"--adapter is {adapter!r}; it must be warp or a number such as 0")
    if struct.calcsize("P") != 8:
        raise RuntimeError("this Python is a 32-bit one. Fix: use a 64-bit Python")
    if not ON_WINDOWS and STAND_IN not in data:
        raise RuntimeError(f"{directml}: DirectML's licence allows its use on Windows only")
    settings = {"directml": str(directml.resolve()), "adapter": adapter, "levels": kit["levels"]}
    device, answers = ask(settings, kit["cases"], timeout)
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "directml": library_record(data),
        "system": f"{platform.system()} {platform.version()}",
        **{name: device[name] for name in ("adapter", "level", "data_types")},
        "cases": answers,
    }


def library_record(data: bytes) -> dict[str, Any]:
    """The record of a library: its SHA-256 and file version."""
    # VS_FIXEDFILEINFO: its signature and the version of its layout come before the file version.
    version_words = data.partition(b"\xbd\x04\xef\xfe\0\0\1\0")[2][:8]
    second, first, fourth, third = struct.unpack("<4H", version_words or bytes(8))
    version = f"{first}.{second}.{third}.{fourth}" if version_words else "of unknown version"
    sha256 = hashlib.sha256(data).hexdigest()
    return {"version": version, "sha256": sha256, "stand_in": STAND_IN in data}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--directml", type=Path, required=True, metavar="PATH")
    parser.add_argument("--adapter", default="warp", help="warp (default), or a number from 0")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for an answer")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OBSERVED.json")
    options = parser.parse_args()
    try:
        if options.output.exists():
            raise ValueError(f"{options.output} exists; it is not replaced. Fix: name a new file")
        observation = observe(options.directml, options.adapter, options.timeout)
        options.output.write_text(json.dumps(observation, indent=1) + "\n")
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        parser.exit(2, f"error: {error}\n")
    sys.stdout.write(
        f"{options.output}: level 0x{observation['level']:X}, {len(observation['cases'])} cases\n"
    )


if __name__ == "__main__":
    main()
