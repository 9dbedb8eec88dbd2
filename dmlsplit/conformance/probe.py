"""Ask a DirectML.dll every case, and write down what it says: an observation.

Each case is asked by a child process, `dmlsplit.conformance.asking`, because a bad descriptor may
crash or hang the library. The kit has both programs as one file, for Windows and Python 3.8 or
newer; nothing but the standard library is used.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import platform
import queue
import re
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035, Python 3.8

from dmlsplit.conformance.asking import LEVELS, MARK, ON_WINDOWS, PROGRAM, Record, UnusableError

SCHEMA = 1
# Outcomes after which nothing more can be asked in the same process.
_LAST = ("crashed", "hung", "removed")
STAND_IN = b"dmlsplit stand-in for DirectML"

_DESCRIPTION = """\
Ask a DirectML.dll which splits it takes, on 64-bit Windows. Nothing is dispatched.
THIS HAS NOT RUN ON WINDOWS YET: only on Linux, with a stand-in for DirectML."""


class Child:
    """A process that asks, and the lines that it answers."""

    def __init__(self, settings: Record, items: list[Any], timeout: float) -> None:
        self.timeout = timeout
        self.process = subprocess.Popen(  # noqa: S603, this very program
            [sys.executable, "-B", str(PROGRAM), "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.process.stdin
        try:
            with self.process.stdin as pipe:
                pipe.write(json.dumps({**settings, "items": items}).encode())
        except OSError:
            pass  # it has ended already, which `next` finds

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as pipe:
            for line in pipe:
                self.lines.put(line)
        self.lines.put(None)

    def next(self) -> Record:
        """Return the next answer, or how the process ended."""
        end = time.monotonic() + self.timeout
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return {"outcome": "hung"}
            if line is None:
                return {"outcome": "crashed", "exit": self.process.wait()}
            text = line.decode("utf-8", "replace")
            if text.startswith(MARK):
                answer: Record = json.loads(text[len(MARK) :])
                return answer

    def end(self) -> None:
        """End the process if it still runs."""
        self.process.kill()
        self.process.wait()


def ask(settings: Record, items: list[Any], timeout: float) -> tuple[Record, list[Record]]:
    """Return what is known of the device, and an answer for each item.

    After a crash, or when the device is removed, the rest is asked in a new process. An item
    counts as the cause only if it is the first of its process: one before may have done it.
    """
    device: Record = {}
    answers: list[Record] = []
    before: Record = {}
    while len(answers) < len(items):
        rest = items[len(answers) :]
        process = Child(settings, rest, timeout)
        try:
            device = process.next()
            if "unusable" in device or "outcome" in device:
                raise UnusableError(
                    device.get("unusable") or f"no device: the library {_ended(device)}"
                )
            for position, _ in enumerate(rest):
                answer = process.next()
                failed = answer.get("outcome") in _LAST
                if failed and position:
                    before = {"after_others": answer}
                    break
                answers.append({**answer, **before})
                before = {}
                if failed:
                    break
        finally:
            process.end()
    return device, answers


def _ended(answer: Record) -> str:
    return f"{answer['outcome']} ({answer['exit']})" if "exit" in answer else "hung"


def file_record(data: bytes) -> Record:
    """Return size, SHA-256 and file version of a library."""
    # The resource VS_VERSION_INFO: its name, then VS_FIXEDFILEINFO with signature and version.
    name = re.escape("VS_VERSION_INFO\0".encode("utf-16-le"))
    found = re.search(name + rb".{0,4}?\xbd\x04\xef\xfe.{4}(.{8})", data, re.DOTALL)
    version = None
    if found:
        high, low = struct.unpack("<2I", found[1])
        version = f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"
    digest = hashlib.sha256(data).hexdigest()
    return {"bytes": len(data), "sha256": digest, "version": version}


def observe(
    cases: list[Record],
    directml: Path,
    adapter: str = "warp",
    debug: bool = False,
    timeout: float = 60.0,
) -> Record:
    """Ask a library every case, and return the observation."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        raise UnusableError("this is a 32-bit Python; use a 64-bit one")
    if adapter != "warp" and not adapter.isdecimal():
        raise UnusableError(f"--adapter is {adapter!r}; it must be warp or a number such as 0")
    try:
        data = directml.read_bytes()
    except OSError as error:
        raise UnusableError(f"{directml}: {error.strerror}") from None
    is_stand_in = STAND_IN in data
    if not ON_WINDOWS and not is_stand_in:
        raise UnusableError(f"{directml}: DirectML's licence allows its use on Windows only")
    settings = {"directml": str(directml.resolve()), "adapter": adapter, "debug": debug}
    device, answers = ask(settings, list(cases), timeout)
    # The first release exports no function that takes a least level.
    minimums = list(LEVELS) if b"DMLCreateDevice1" in data else []
    _, levels = ask(settings, minimums, timeout)
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "directml": {"file": directml.name, **file_record(data), "stand_in": is_stand_in},
        **device,
        "system": {
            "name": platform.system(),
            "build": platform.version(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "debug": debug,
        "minimum_levels": [
            {"asked": level, **answer}
            for level, answer in zip(minimums, levels)  # noqa: B905, Python 3.8
        ],
        "cases": [
            {**{key: case[key] for key in ("id", "last_stage", "desc")}, **answer}
            for case, answer in zip(cases, answers)  # noqa: B905, Python 3.8
        ],
    }


def text_of(observation: Record) -> str:
    """Return an observation as JSON, one case a line."""
    head = {key: value for key, value in observation.items() if key != "cases"}
    start = json.dumps(head, indent=1)[:-2]
    body = ",\n".join(map(json.dumps, observation["cases"]))
    return f'{start},\n "cases": [\n{body}\n ]\n}}\n'


def check_new(path: Path) -> None:
    """Refuse a file that exists, or whose folder does not."""
    if path.exists():
        raise UnusableError(f"{path} exists; name a new file")
    if not path.absolute().parent.is_dir():
        raise UnusableError(f"{path.parent}: there is no such folder")


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet; it appears whole."""
    check_new(path)
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        partial.rename(path)
    except OSError as error:
        raise UnusableError(f"{path}: {error.strerror}") from None


def counts(observation: Record) -> Iterator[str]:
    """Yield the number of cases of each outcome."""
    found = [case["outcome"] for case in observation["cases"]]
    for name in sorted(set(found)):
        yield f"{found.count(name)} {name}"


def main() -> int:
    """Probe as the command line says."""
    parser = argparse.ArgumentParser(description=_DESCRIPTION)
    parser.add_argument("--directml", type=Path, required=True, metavar="PATH")
    parser.add_argument("--adapter", default="warp", help="warp (default), or a number from 0")
    parser.add_argument("--debug", action="store_true", help="with the debug layers")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="per case")
    beside = Path(__file__).resolve().with_name("cases.json")
    parser.add_argument("--cases", type=Path, default=beside, help="default: beside this file")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OBSERVED.json")
    given = parser.parse_args()
    try:
        check_new(given.output)
        listed = json.loads(given.cases.read_text("utf-8"))["cases"]
        cases = [case for case in listed if case["last_stage"] != "bind"]
        found = observe(cases, given.directml, given.adapter, given.debug, given.timeout)
        write_new(given.output, text_of(found))
    except (UnusableError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{given.output}: level 0x{found['level']:X}, {', '.join(counts(found))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
