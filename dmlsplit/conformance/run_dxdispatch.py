"""Run the kit's DxDispatch models on a dxdispatch.exe, and add what they give to an observation.

``python run_dxdispatch.py --dxdispatch EXE --observed OBSERVED.json -o WITH_BYTES.json``, in the
folder of the kit. Python 3.8 or newer and nothing else; the DirectML.dll beside the EXE must be
the one that was observed, because that is the one it loads.

**It has not run on Windows yet**: only on Linux, with a program that stands in for DxDispatch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, Dict  # noqa: UP035, Python 3.8

Record = Dict[str, Any]  # noqa: UP006, Python 3.8

POISON = 0xA5
MOST_TEXT = 1000
# Every DirectML that DxDispatch can use has it; it is a minimum and changes nothing else.
LEAST_LEVEL = "2.0"


class UnusableError(Exception):
    """There is nothing to run, for the reason that the text gives."""


def run_models(
    texts: dict[str, str],
    listed: list[Record],
    program: Path,
    adapter: str = "Basic",
    debug: bool = False,
    timeout: float = 120.0,
) -> list[Record]:
    """Run every model in a new folder, so that no file of another run is taken for its own."""
    records = []
    for entry in listed:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = folder / "model.json"
            model.write_text(texts[entry["model"]], "utf-8")
            ended = _run(program, model, adapter, debug, timeout)
            cases = [_case_record(folder, case) for case in entry["cases"]]
        records.append({"model": entry["model"], **ended, "cases": cases})
    return records


def _run(program: Path, model: Path, adapter: str, debug: bool, timeout: float) -> Record:
    line = [str(program), str(model), "-a", adapter, "--dml_feature_level", LEAST_LEVEL]
    line += ["--output_path", str(model.parent)] + (["--debug"] if debug else [])
    try:
        done = subprocess.run(  # noqa: S603, the program that the user names
            line, cwd=str(model.parent), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"outcome": "hung"}
    except OSError as error:
        raise UnusableError(f"{program}: {error.strerror}") from None
    said = done.stderr.decode("utf-8", "replace")[-MOST_TEXT:]
    code = done.returncode
    # A signal, or an NTSTATUS such as 0xC0000005; the HRESULTs of DxDispatch begin with an 8.
    crashed = code < 0 or code & 0xF0000000 == 0xC0000000
    outcome = "crashed" if crashed else "refused" if code else "accepted"
    return {"outcome": outcome, "exit": code & 0xFFFFFFFF, "said": said}


def _case_record(folder: Path, case: Record) -> Record:
    outputs = case["desc"]["OutputTensors"]
    found = [
        _output_record(folder / path, tensor, strides, case["element_bytes"])
        for path, tensor, strides in zip(case["outputs"], outputs, case["strides"])  # noqa: B905, Python 3.8
    ]
    asked: Record = {key: case[key] for key in ("id", "values", "placement", "desc") if key in case}
    return {**asked, "outputs": found}


def _output_record(path: Path, tensor: Record, strides: list[int], width: int) -> Record | None:
    """Hash the elements, in order and without what lies between; None if there is no such file."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest = hashlib.sha256()
    for index in product(*map(range, tensor["Sizes"])):
        start = sum(step * at for step, at in zip(strides, index)) * width  # noqa: B905
        digest.update(data[start : start + width])
    behind = data[tensor["TotalTensorSizeInBytes"] :]
    return {"sha256": digest.hexdigest(), "kept_behind": set(behind) <= {POISON}}


def check_library(program: Path, observed: Record) -> None:
    """Refuse a DxDispatch that would load another DirectML.dll than the observed one."""
    beside = program.resolve().with_name(observed["directml"]["file"])
    try:
        digest = hashlib.sha256(beside.read_bytes()).hexdigest()
    except OSError as error:
        raise UnusableError(
            f"{beside}: {error.strerror}; DxDispatch would load another one"
        ) from None
    if digest != observed["directml"]["sha256"]:
        raise UnusableError(f"{beside} is not the library that was observed; copy that one there")


def text_of(observation: Record) -> str:
    """Return an observation as JSON, one case and one model a line."""
    lists = ("cases", "dxdispatch")
    head = {key: value for key, value in observation.items() if key not in lists}
    text = json.dumps(head, indent=1)[:-2]
    for name in lists:
        text += f',\n "{name}": [\n' + ",\n".join(map(json.dumps, observation[name])) + "\n ]"
    return text + "\n}\n"


def main() -> int:
    """Run the models as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--dxdispatch", type=Path, required=True, metavar="EXE")
    parser.add_argument("--observed", type=Path, required=True, metavar="OBSERVED.json")
    parser.add_argument("--adapter", default="Basic", help="part of its name; Basic is WARP")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="per model")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="WITH_BYTES.json")
    given = parser.parse_args()
    kit = Path(__file__).resolve().parent
    try:
        if given.output.exists():
            raise UnusableError(f"{given.output} exists; name a new file")
        observed = json.loads(given.observed.read_text("utf-8"))
        check_library(given.dxdispatch, observed)
        listed = json.loads((kit / "dxdispatch.json").read_text("utf-8"))["models"]
        names = [entry["model"] for entry in listed]
        texts = {name: (kit / "dxdispatch" / name).read_text("utf-8") for name in names}
        debug = observed["debug"]
        observed["dxdispatch"] = run_models(
            texts, listed, given.dxdispatch.resolve(), given.adapter, debug, given.timeout
        )
        with given.output.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text_of(observed))
    except (UnusableError, OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{given.output}: {len(listed)} models run\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
