"""Ask a DirectML.dll which splits it accepts, and write its answers to a file: an observation.

This program needs 64-bit Windows, Python 3.8 or newer, and the other files of the kit next to it.
It creates and compiles operators. Only DxDispatch, if it is given, dispatches them.

THIS HAS NOT RUN ON WINDOWS YET: only on Linux, with stand-ins for DirectML and DxDispatch.
"""

# A bad descriptor may crash or hang the library. The library is therefore called in a child
# process, this program with --child. When a child dies, the parent starts another for the
# remaining items.
# ruff: noqa: B905, Python 3.8 has no zip(strict=True)

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Record = dict[str, Any]

SCHEMA = 1
ON_WINDOWS = sys.platform == "win32"
STAND_IN = b"dmlsplit stand-in for DirectML"
MAX_TEXT = 1000


class UnusableError(Exception):
    """Nothing can be observed; the text says why."""


# ---- the binary interface ----------------------------------------------------------------------
# From DirectML.h, d3d12.h and d3d12sdklayers.h of https://github.com/microsoft/DirectX-Headers, and
# dxgi.h to dxgi1_4.h of the Windows SDK. Layouts are formats of `struct`, with the alignment of C.

BUFFER_TENSOR = "3I2PQI0P"  # type, flags, count, sizes, strides, TotalTensorSizeInBytes, alignment
TYPED = "IP"  # DML_TENSOR_DESC and DML_OPERATOR_DESC: type, address of the description
SPLIT = "PIPI0P"  # InputTensor, OutputCount, OutputTensors, Axis
LEVELS_QUERY = "IP"  # count, address
ADAPTER = "256s4I3N3I0P"  # name, vendor, device, SubSysId, Revision, memory, AdapterLuid, Flags
MESSAGE = "3IPN"  # category, severity, ID, text, its length
DATA_TYPES = (  # in the order of their values, from 0
    "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4"
).split()
FLAGS = {"NONE": 0, "OWNED_BY_DML": 1}
TENSOR_TYPE_BUFFER, OPERATOR_SPLIT = 1, 62
D3D_FEATURE_LEVEL_11_0 = 0xB000
FAILED = 0x80000000  # the bit of an HRESULT that means failure
# DXGI_ERROR_DEVICE_REMOVED, _HUNG and _RESET: after these, the device's answers are meaningless.
REMOVED = (0x887A0005, 0x887A0006, 0x887A0007)

# The indices of methods in their tables, which start with the three of IUnknown.
QUERY_INTERFACE, RELEASE = 0, 2
FACTORY_ENUM_ADAPTERS1, FACTORY_ENUM_WARP_ADAPTER = 12, 27
ADAPTER_CHECK_INTERFACE_SUPPORT, ADAPTER_GET_DESC1 = 9, 10
DEBUG_ENABLE_LAYER = 3
QUEUE_CLEAR, QUEUE_GET_MESSAGE, QUEUE_COUNT = 4, 5, 8
DML_CHECK_FEATURE_SUPPORT, DML_CREATE_OPERATOR, DML_COMPILE_OPERATOR = 7, 8, 9

_stored: list[Any] = []  # never freed, because a child lives only for seconds


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
IDXGI_DEVICE = _iid("54ec77fa-1377-44e6-8c32-88fd5f44c84c")
ID3D12_DEVICE = _iid("189819f1-1db6-4b57-be54-1821339b85f7")
ID3D12_DEBUG = _iid("344488b7-6846-474b-b989-f027448245e0")
ID3D12_INFO_QUEUE = _iid("0742a90b-c387-483f-b946-30a7e4e61458")
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
    (address,) = read("P", table + struct.calcsize("P") * place)
    return partial(call, address, this)


def new(function: Callable[..., int], *arguments: int) -> tuple[int, int]:
    """Call a function that stores a new object at its last argument; return HRESULT and object."""
    place = room("P")
    return function(*arguments, place), read("P", place)[0]


def made(name: str, hresult: int, this: int) -> int:
    """The new object; an UnusableError if the function `name` returned none."""
    if hresult & FAILED or not this:
        raise UnusableError(f"{name} returned 0x{hresult:08X}")
    return this


def exported(library: ctypes.CDLL, name: str, *arguments: int) -> int:
    """The new object that a library's exported function returns."""
    return made(name, *new(partial(call, (name, library)), *arguments))


def operator_desc(fields: Record) -> int:
    """Store a DML_OPERATOR_DESC; return its address."""
    outputs = [part for tensor in fields["OutputTensors"] for part in _tensor_desc(tensor)]
    split = stored(
        SPLIT,
        stored(TYPED, *_tensor_desc(fields["InputTensor"])),
        fields["OutputCount"],
        stored(TYPED * (len(outputs) // 2), *outputs),
        fields["Axis"],
    )
    return stored(TYPED, OPERATOR_SPLIT, split)


def _tensor_desc(fields: Record) -> tuple[int, int]:
    sizes, strides = fields["Sizes"], fields.get("Strides")
    buffer = stored(
        BUFFER_TENSOR,
        DATA_TYPES.index(fields["DataType"]),
        FLAGS[fields["Flags"]],
        fields["DimensionCount"],
        stored(f"{len(sizes)}I", *sizes),
        0 if strides is None else stored(f"{len(strides)}I", *strides),
        fields["TotalTensorSizeInBytes"],
        fields["GuaranteedBaseOffsetAlignment"],
    )
    return TENSOR_TYPE_BUFFER, buffer


# ---- the child: asks one device, item by item --------------------------------------------------

MARK = b"@dmlsplit "  # starts each line of the child; the library may print lines, too
MAX_MESSAGES = 16


class Direct3D:
    """A D3D12 device on an adapter, and the library that creates DirectML devices on it."""

    def __init__(self, directml: str, adapter: str, debug: bool, levels: list[int]) -> None:
        try:
            self.directml = d3d12 = dxgi = ctypes.CDLL(directml)  # a stand-in replaces all three
            if ON_WINDOWS:
                d3d12, dxgi = ctypes.CDLL("d3d12.dll"), ctypes.CDLL("dxgi.dll")
        except OSError as error:
            raise UnusableError(f"{directml} cannot be loaded: {error}") from None
        self.debug, self.levels = debug, levels
        if debug:
            method(exported(d3d12, "D3D12GetDebugInterface", ID3D12_DEBUG), DEBUG_ENABLE_LAYER)()
        factory = exported(dxgi, "CreateDXGIFactory2", 0, IDXGI_FACTORY4)
        name, place, which = "EnumWarpAdapter", FACTORY_ENUM_WARP_ADAPTER, IDXGI_ADAPTER1
        if adapter != "warp":
            name, place, which = f"EnumAdapters1({adapter})", FACTORY_ENUM_ADAPTERS1, int(adapter)
        self.adapter = made(name, *new(method(factory, place), which))
        least = D3D_FEATURE_LEVEL_11_0
        self.device = exported(d3d12, "D3D12CreateDevice", self.adapter, least, ID3D12_DEVICE)
        _, self.messages = new(method(self.device, QUERY_INTERFACE), ID3D12_INFO_QUEUE)

    def create(self, level: int) -> tuple[int, int]:
        """Create a device with a minimum feature level, a parameter that the oldest DLLs lack."""
        name, least = "DMLCreateDevice1", [level]
        if not hasattr(self.directml, name):
            name, least = "DMLCreateDevice", []
        create = partial(call, (name, self.directml))
        return new(create, self.device, self.debug, *least, IDML_DEVICE)

    def said(self) -> list[str]:
        """The messages of the debug layer since the last call."""
        if not self.debug or not self.messages:
            return []
        count = method(self.messages, QUEUE_COUNT)()
        texts = [self._message(index) for index in range(min(count, MAX_MESSAGES))]
        method(self.messages, QUEUE_CLEAR)()
        return texts

    def _message(self, index: int) -> str:
        get, size = method(self.messages, QUEUE_GET_MESSAGE), room("N")
        get(index, 0, size)
        message = room(f"{read('N', size)[0]}s0P")
        get(index, message, size)
        *_, text, _ = read(MESSAGE, message)
        return ctypes.string_at(text).decode("utf-8", "replace")[:MAX_TEXT] if text else ""


def device_record(direct3d: Direct3D, device: int) -> Record:
    """The record of the adapter, as DXGI describes it, and of the device on it."""
    desc, driver = room(ADAPTER), room("4H")
    method(direct3d.adapter, ADAPTER_GET_DESC1)(desc)
    method(direct3d.adapter, ADAPTER_CHECK_INTERFACE_SUPPORT)(IDXGI_DEVICE, driver)
    name, vendor, chip, *_, flags = read(ADAPTER, desc)
    adapter = {
        "name": name.decode("utf-16-le", "replace").partition("\0")[0],
        "vendor": vendor,
        "device": chip,
        "driver": ".".join(map(str, reversed(read("4H", driver)))),
        "software": bool(flags & 2),
    }
    kinds = enumerate(DATA_TYPES[1:], 1)
    types = {name: bool(_feature(device, 0, "I", kind)) for kind, name in kinds}
    level = highest_level(device, direct3d.levels)
    return {"adapter": adapter, "level": level, "data_types": types}


def highest_level(device: int, levels: list[int]) -> int:
    """The device's highest feature level; 1_0 for DLLs that cannot answer."""
    asked = stored(f"{len(levels)}I", *levels)
    return _feature(device, 1, LEVELS_QUERY, len(levels), asked) or levels[0]


def _feature(device: int, feature: int, layout: str, *query: int) -> int:
    answer = room("I")
    given = (feature, struct.calcsize(layout), stored(layout, *query), struct.calcsize("I"), answer)
    failed = method(device, DML_CHECK_FEATURE_SUPPORT)(*given)
    return 0 if failed else int(read("I", answer)[0])


def ask_case(direct3d: Direct3D, device: int, case: Record) -> Record:
    """The answer to a case: create its operator, and compile it unless it is too large."""
    stage, compiled = "create", 0
    given = (operator_desc(case["desc"]), IDML_OPERATOR)
    hresult, operator = new(method(device, DML_CREATE_OPERATOR), *given)
    if not hresult & FAILED and case["last_stage"] == "compile":
        stage, compile_ = "compile", method(device, DML_COMPILE_OPERATOR)
        hresult, compiled = new(compile_, operator, 0, IDML_COMPILED_OPERATOR)
    for this in filter(None, (compiled, operator)):
        method(this, RELEASE)()
    refused = "removed" if hresult in REMOVED else "refused"
    outcome = refused if hresult & FAILED else "accepted"
    answer = {"outcome": outcome, "stage": stage, "hresult": f"0x{hresult:08X}"}
    said = direct3d.said()
    return {**answer, "debug": said} if said else answer


def ask_level(direct3d: Direct3D, level: int) -> Record:
    """The answer to a minimum feature level: create a device with it, and ask for its level."""
    hresult, device = direct3d.create(level)
    answer: Record = {"hresult": f"0x{hresult:08X}", "level": None}
    if not hresult & FAILED and device:
        answer["level"] = highest_level(device, direct3d.levels)
        method(device, RELEASE)()
    return answer


def emit(record: Record) -> None:
    """Send a line to the parent."""
    sys.stdout.write(f"\n{MARK.decode()}{json.dumps(record)}\n")
    sys.stdout.flush()


def child() -> None:
    """Read the settings and items from standard input; describe the device, answer each item."""
    asked = json.loads(sys.stdin.read())
    if ON_WINDOWS:
        ctypes.CDLL("kernel32").SetErrorMode(3)  # no dialogs about crashes
    try:
        direct3d = Direct3D(**asked["settings"])
        device = made("DMLCreateDevice1", *direct3d.create(direct3d.levels[0]))
    except UnusableError as error:
        emit({"unusable": str(error)})
        return
    direct3d.said()
    emit(device_record(direct3d, device))
    for item in asked["items"]:
        is_level = isinstance(item, int)
        emit(ask_level(direct3d, item) if is_level else ask_case(direct3d, device, item))
    os._exit(0)  # skip the teardown of the DLLs, because it is not under test


# ---- the parent: starts children until every item has an answer --------------------------------

LAST = ("crashed", "hung", "removed")  # outcomes that end a child


def ask(settings: Record, items: list[Any], timeout: float) -> tuple[Record, list[Record]]:
    """Ask about each item; return the record of the device, and the answers.

    If a process ends at its first item, that item is the cause. Any other item is asked again in a
    new process, and `after_others` in its answer says how the earlier process ended.
    """
    device: Record = {}
    answers: list[Record] = []
    before: Record = {}
    while len(answers) < len(items):
        device, *found = _from_child(settings, items[len(answers) :], timeout)
        if "level" not in device:
            code = f" ({device['exit']})" if "exit" in device else ""
            ended = f"no device was created: the library {device.get('outcome')}{code}"
            raise UnusableError(device.get("unusable", ended))
        found[0].update(before)
        before = {}
        if len(found) > 1 and found[-1].get("outcome") in LAST:
            before = {"after_others": found.pop()}
        answers += found
    return device, answers


def _from_child(settings: Record, items: list[Any], timeout: float) -> list[Record]:
    """Start a child; return its record of the device and its answers, up to an outcome of LAST."""
    found: list[Record] = []
    line = [sys.executable, "-B", str(Path(__file__).resolve()), "--child"]
    with tempfile.TemporaryFile() as asked:
        asked.write(json.dumps({"settings": settings, "items": items}).encode())
        asked.seek(0)
        with subprocess.Popen(
            line, stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                while len(found) <= len(items):
                    found.append(_next_answer(process, timeout))
                    if found[-1].get("outcome") in LAST:
                        break
            finally:
                process.kill()
    return found


def _next_answer(process: subprocess.Popen[bytes], timeout: float) -> Record:
    """The next answer of a child, or how it ended."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout, give_up)
    timer.start()
    line = next((line for line in process.stdout or () if line.startswith(MARK)), b"")
    timer.cancel()
    timer.join()
    if late.is_set():
        return {"outcome": "hung"}
    if not line:
        return {"outcome": "crashed", "exit": process.wait()}
    answer: Record = json.loads(line[len(MARK) :])
    return answer


# ---- DxDispatch, for bytes and bindings --------------------------------------------------------

POISON = 0xA5  # every byte of a buffer before the dispatch
MIN_LEVEL = "2.0"  # a minimum that every DirectML has that DxDispatch can use


def run_models(
    kit: Path, cases: list[Record], program: Path, options: list[str], timeout: float
) -> Iterator[tuple[str, Record]]:
    """Run the model of each case that has one; yield the case's id and record."""
    line = [str(program.resolve()), "--dml_feature_level", MIN_LEVEL, *options]
    for case in cases:
        name, model = case["id"], kit / "dxdispatch" / f"{case['id']}.json"
        if not model.is_file():
            continue
        # In a new folder, so that no file of another run is mistaken for an output of this one.
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(str(model), folder)
            ended = _run([*line, copy, "--output_path", folder], folder, timeout)
            # Only the verdicts of other cases are compared.
            tensors = case["desc"]["OutputTensors"] if "output_sha256" in case else []
            paths = (Path(folder, "outputs", f"{name}-{at}.bin") for at in range(len(tensors)))
            ended["outputs"] = list(map(_output, paths, tensors))
        asked = {key: value for key, value in case.items() if key in ("values", "placement")}
        yield name, {**asked, "dispatched": ended}


def _run(line: list[str], folder: str, timeout: float) -> Record:
    try:
        done = subprocess.run(
            line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"outcome": "hung"}
    except OSError as error:  # on Windows it has no file name
        raise UnusableError(f"{line[0]}: {error.strerror}") from None
    code = done.returncode
    # A crash is a signal or an NTSTATUS such as 0xC0000005; DxDispatch's HRESULTs begin with an 8.
    crashed = code < 0 or code & 0xF0000000 == 0xC0000000
    outcome = "crashed" if crashed else "refused" if code else "accepted"
    # The path may contain a user's name.
    said = done.stderr.decode("utf-8", "replace").replace(folder + os.sep, "")[-MAX_TEXT:]
    return {"outcome": outcome, "exit": code & 0xFFFFFFFF, "said": said}


def _output(path: Path, tensor: Record) -> Record | None:
    """The hash of the elements in order, without the gaps; None if there is no such file."""
    if not path.is_file():
        return None
    data, sizes, digest = path.read_bytes(), tensor["Sizes"], hashlib.sha256()
    width = int(re.sub("[A-Z]", "", tensor["DataType"])) // 8
    packed = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    for index in product(*map(range, sizes)):
        start = sum(map(mul, index, tensor.get("Strides", packed))) * width
        digest.update(data[start : start + width])
    behind = data[tensor["TotalTensorSizeInBytes"] :]
    return {"sha256": digest.hexdigest(), "kept_behind": set(behind) <= {POISON}}


# ---- the observation ---------------------------------------------------------------------------


def observe(
    cases: Path,
    directml: Path,
    adapter: str = "warp",
    debug: bool = False,
    timeout: float = 60.0,
    dxdispatch: Path | None = None,
) -> Record:
    """Ask a library about every case of a kit; with DxDispatch, also run the models."""
    kit, data = json.loads(cases.read_text("utf-8")), directml.read_bytes()
    if adapter != "warp" and not adapter.isdecimal():
        raise UnusableError(f"--adapter is {adapter!r}; it must be warp or a number such as 0")
    if not 0 < timeout <= 86400:
        raise UnusableError(f"--timeout is {timeout}; it must be above 0 and at most 86400 seconds")
    _check_library(directml, data, dxdispatch)
    levels = list(kit["levels"].values())
    settings: Record = {"directml": str(directml.resolve()), "adapter": adapter, "debug": debug}
    settings["levels"] = levels
    asked = [case for case in kit["cases"] if case["last_stage"] != "bind"]
    device, answers = ask(settings, asked, timeout)
    # The first release has no function that takes a minimum level.
    minimums = levels if b"DMLCreateDevice1" in data else []
    _, devices = ask(settings, minimums, timeout)
    kept = ("id", "last_stage", "desc")
    found = {case["id"]: {key: case[key] for key in kept} for case in kit["cases"]}
    for case, answer in zip(asked, answers):
        found[case["id"]].update(answer)
    if dxdispatch:
        options = ["-a", device["adapter"]["name"], *["--debug"] * debug]
        for name, ran in run_models(cases.parent, kit["cases"], dxdispatch, options, timeout):
            found[name].update(ran)
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "directml": {"file": directml.name, **library_record(data)},
        **device,
        "system": {  # without the name of the machine
            "name": platform.system(),
            "build": platform.version(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "debug": debug,
        "minimum_levels": [{"asked": level, **each} for level, each in zip(minimums, devices)],
        "cases": [each for each in found.values() if len(each) > len(kept)],
    }


def _check_library(directml: Path, data: bytes, dxdispatch: Path | None) -> None:
    if struct.calcsize("P") != 8:
        raise UnusableError("this Python is a 32-bit one. Fix: use a 64-bit Python")
    if not ON_WINDOWS and STAND_IN not in data:
        raise UnusableError(f"{directml}: DirectML's licence allows its use on Windows only")
    beside = dxdispatch and dxdispatch.resolve().with_name(directml.name)
    if beside and (not beside.is_file() or beside.read_bytes() != data):
        raise UnusableError(f"{beside} is not a copy of {directml}. Fix: copy that file there")


def library_record(data: bytes) -> Record:
    """The record of a library: its size, SHA-256 and file version."""
    # The resource VS_VERSION_INFO is its name, then VS_FIXEDFILEINFO (signature, version).
    name = re.escape("VS_VERSION_INFO\0".encode("utf-16-le"))
    found = re.search(name + rb".{0,4}?\xbd\x04\xef\xfe.{4}(.{8})", data, re.DOTALL)
    version = None
    if found:
        second, first, fourth, third = struct.unpack("<4H", found[1])
        version = f"{first}.{second}.{third}.{fourth}"
    digest = hashlib.sha256(data).hexdigest()
    is_stand_in = STAND_IN in data
    return {"bytes": len(data), "sha256": digest, "version": version, "stand_in": is_stand_in}


def json_lines(document: Record) -> str:
    """A document as JSON with the cases last, one per line."""
    head = {name: value for name, value in document.items() if name != "cases"}
    body = ",\n".join(map(json.dumps, document["cases"]))
    return f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n{body}\n ]\n}}\n'


def check_new(path: Path) -> None:
    """Refuse a file that exists, or whose folder is missing."""
    if path.exists():
        raise UnusableError(f"{path} exists; it is not replaced. Fix: name a new file")
    if not path.absolute().parent.is_dir():
        raise UnusableError(f"{path.parent}: there is no such folder")


def write_new(path: Path, observation: Record) -> None:
    """Write an observation to a new file. It appears once it is complete."""
    check_new(path)
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_bytes(json_lines(observation).encode())
        draft.rename(path)
    except OSError as error:
        raise UnusableError(f"{path}: {error.strerror}") from None


def counts(observation: Record) -> str:
    """The number of cases with each outcome."""
    found = [case["outcome"] for case in observation["cases"] if "outcome" in case]
    return ", ".join(f"{found.count(name)} {name}" for name in sorted(set(found)))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directml", type=Path, required=True, metavar="PATH")
    parser.add_argument("--adapter", default="warp", help="warp (default), or a number from 0")
    parser.add_argument("--debug", action="store_true", help="use the debug layers")
    parser.add_argument(
        "--dxdispatch", type=Path, metavar="EXE", help="also run the models with it"
    )
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="per case")
    beside = Path(__file__).resolve().with_name("cases.json")
    parser.add_argument("--cases", type=Path, default=beside, help="default: next to this file")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OBSERVED.json")
    given = vars(parser.parse_args())
    output = given.pop("output")
    try:
        check_new(output)
        found = observe(**given)
        write_new(output, found)
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}\n")
        return 2
    except (UnusableError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{output}: level 0x{found['level']:X}, {counts(found)}\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        child()
    else:
        sys.exit(main())
