"""``dmlsplit run``: split a file or a store, or carry out a DxDispatch model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlsplit.cli.inputs import integers
from dmlsplit.cli.terminal import ACCEPTED, progress_bar, show

if TYPE_CHECKING:
    from dmlsplit.cli.inputs import Commands
    from dmlsplit.storage.npy import SplitFiles


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="split a .npy file or a zarr array, or carry out a DxDispatch model",
        description="Split INPUT along an axis into NAME_0.npy, NAME_1.npy, ... or NAME_0.zarr, "
        "... INPUT may be larger than memory. The pieces appear when all are complete. A run that "
        "writes zarr can be interrupted: the same command goes on where it stopped. A .json file "
        "is a DxDispatch model: its commands are carried out, print and writeFile included.",
    )
    parser.add_argument(
        "input", type=Path, metavar="INPUT", help=".npy file, zarr array or DxDispatch .json"
    )
    parser.add_argument("--axis", type=int, help="negative counts from the end")
    cut = parser.add_mutually_exclusive_group()
    cut.add_argument("--split", type=integers, metavar="2,1,3", help="size of each piece")
    cut.add_argument("--count", type=int, metavar="N", help="number of equal pieces")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: here")
    parser.add_argument(
        "--format", choices=("npy", "zarr"), help="of the pieces; default: that of INPUT"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://host:8786"
    )
    parser.add_argument(
        "--block-bytes", type=int, metavar="N", help="of INPUT per task; zarr only, default 8388608"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Split a file or a store, or carry out a DxDispatch model."""
    if arguments.input.suffix == ".json":
        return _run_model(arguments)
    from dmlsplit.device import Device
    from dmlsplit.errors import InvalidArgumentError

    cut = arguments.count if arguments.split is None else arguments.split
    if arguments.axis is None or cut is None:
        raise InvalidArgumentError(
            f"{arguments.input} needs --axis, and --split 2,1,3 or --count N"
        )
    # Workers of a cluster have devices that this machine may lack.
    device = arguments.device if arguments.scheduler else Device(arguments.device).name
    done = _split(arguments, cut, device)
    print(
        f"{done.input}: {done.dtype} {done.shape} -> {len(done.paths)} pieces "
        f"along axis {done.axis}, on {device}"
    )
    for path, shape in zip(done.paths, done.shapes, strict=True):
        print(f"  {path}  {done.dtype} {shape}")
    for note in done.notes:
        print(f"dmlsplit: note: {note}", file=sys.stderr)
    return ACCEPTED


def _split(arguments: argparse.Namespace, cut: Any, device: str) -> SplitFiles:
    """Split into pieces of the format that is asked for, or that of the input."""
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.storage.npy import split_file
    from dmlsplit.storage.resumable import split_store
    from dmlsplit.storage.zarr_arrays import is_store

    split = (arguments.input, cut, arguments.axis, arguments.output or Path())
    zarr_only = {name: getattr(arguments, name) for name in ("scheduler", "block_bytes")}
    stored = is_store(arguments.input)
    if arguments.format == "zarr" or (stored and arguments.format is None):
        with progress_bar(arguments.input.name) as progress:
            return split_store(*split, device=device, progress=progress, **zarr_only)
    if stored:
        raise InvalidArgumentError(f"{arguments.input} is split into zarr only. Fix: --format zarr")
    given = [name for name, value in zarr_only.items() if value is not None]
    if given:
        raise InvalidArgumentError(
            f"--{given[0].replace('_', '-')} is for zarr pieces only. Fix: --format zarr"
        )
    with progress_bar(arguments.input.name) as progress:
        return split_file(*split, device=device, progress=progress)


def _run_model(arguments: argparse.Namespace) -> int:
    """Carry out a DxDispatch model; it prints what Windows' dxdispatch.exe prints."""
    from dmlsplit.device import Device
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.frontends.dxdispatch import run as run_model

    names = ("axis", "split", "count", "output", "format", "scheduler", "block_bytes")
    given = [name for name in names if getattr(arguments, name) is not None]
    if given:
        raise InvalidArgumentError(
            f"--{given[0].replace('_', '-')} is not for a DxDispatch model, which says itself "
            "what to split and where to write"
        )
    run_model(arguments.input, Device(arguments.device), output=show)
    return ACCEPTED
