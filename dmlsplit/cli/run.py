"""``dmlsplit run``: split a .npy file, or run a DxDispatch model."""

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import Commands, add_command, integer, integers
from dmlsplit.cli.terminal import EXIT_OK, print_message, print_result, progress_bar
from dmlsplit.errors import (
    DmlError,
    InvalidArgumentError,
    UnsupportedError,
    path_in_errors,
    unreadable_file_error,
)
from dmlsplit.messages import MAX_SHOWN, counted, printable

if TYPE_CHECKING:
    from dmlsplit.execution.device import Device
    from dmlsplit.storage.npy import Progress, SplitFiles

_DESCRIPTION = """\
Split INPUT along an axis into NAME_0.npy, NAME_1.npy, ...
INPUT may be larger than memory. The pieces get their names when all of them are
complete. For zarr arrays, use Dask in a program.
A .json file is a DxDispatch model, whose commands are run, including print and
writeFile."""

_EXAMPLES = """\
  dmlsplit run IN.npy --axis 1 --split 1,2 -o OUT
  dmlsplit run IN.npy --axis -1 --count 2 --overwrite
  dmlsplit run MODEL.json"""

_WITH_DASK = "Fix: dask.array.from_zarr, dmlsplit.split and dask.array.to_zarr in a program"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "split a .npy file, or run a DxDispatch model"
    statuses = {EXIT_OK: "the pieces were written, or the model has run"}
    parser = add_command(
        commands,
        run,
        summary=summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        statuses=statuses,
    )
    parser.add_argument("input", metavar="INPUT", help=".npy file or DxDispatch .json")
    parser.add_argument(
        "--axis", type=integer, help="the axis to split; a negative axis counts from the end"
    )
    division = parser.add_mutually_exclusive_group()
    division.add_argument("--split", type=integers, metavar="2,1,3", help="the size of each piece")
    division.add_argument("--count", type=integer, metavar="N", help="the number of equal pieces")
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu (default), cuda, cuda:N, or auto (cuda:0 if it can be used, otherwise cpu with a "
        "note that says why)",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the folder of the pieces; default: the current one"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")


def run(arguments: argparse.Namespace) -> int:
    """Split a file, or run a DxDispatch model."""
    arguments.input = _local_file(arguments)
    if arguments.input.suffix == ".json":
        return _run_model(arguments)
    sizes_or_count = arguments.count if arguments.split is None else arguments.split
    needed = {"--axis N": arguments.axis, "--split 2,1,3 or --count N": sizes_or_count}
    if missing := [option for option, value in needed.items() if value is None]:
        raise InvalidArgumentError(f"to split {arguments.input}, give {' and '.join(missing)}")
    _check_count(arguments)
    device = _device(arguments.device).name
    try:
        with progress_bar(arguments.input.name) as progress:
            files = _split(arguments, sizes_or_count, device, progress)
    except OSError as error:
        if error.filename is None or Path(error.filename) != arguments.input:
            raise
        with path_in_errors(arguments.input):
            raise unreadable_file_error(error) from None
    pieces = zip(files.paths, files.shapes, strict=True)
    head = (
        f"{arguments.input}: {files.dtype} {files.shape} -> {counted(len(files.paths), 'piece')} "
        f"along axis {files.axis}, on {device}"
    )
    lines = (head, *(f"  {path}  {files.dtype} {shape}" for path, shape in pieces))
    print_result("\n".join(map(printable, lines)))
    return EXIT_OK


def _local_file(arguments: argparse.Namespace) -> Path:
    """The input, unless it is something else than a file to run."""
    for path in (arguments.input, arguments.output or ""):
        if "://" in path:
            raise UnsupportedError(
                f"{path} is a URL; run reads and writes local files only. {_WITH_DASK}"
            )
    file = Path(arguments.input)
    if file.is_dir():
        raise InvalidArgumentError(
            f"{file} is a folder; run splits .npy files, and Dask zarr arrays. {_WITH_DASK}"
        )
    if file.suffix in (".onnx", ".xml"):
        raise InvalidArgumentError(
            f"{file} is a model; run splits arrays. Fix: dmlsplit validate {file}, or dmlsplit "
            f"explain {file}"
        )
    return file


def _check_count(arguments: argparse.Namespace) -> None:
    """Refuse a count that does not divide the axis, with options that would work instead."""
    from dmlsplit.checks import nearly_equal

    count = arguments.count
    if count is None or (size := _axis_size(arguments.input, arguments.axis)) is None:
        return
    if size and (count < 1 or size % count):
        near = nearly_equal(size, count)
        sizes = f"--split {','.join(map(str, near))} or " if 0 < len(near) <= MAX_SHOWN else ""
        counts = ", ".join(str(number) for number in range(1, MAX_SHOWN) if size % number == 0)
        raise InvalidArgumentError(
            f"--count is {count}; it must divide {size}, the size of axis {arguments.axis}. Fix: "
            f"give {sizes}a --count such as {counts}"
        )


def _axis_size(path: Path, axis: int) -> int | None:
    """The size of an axis of a .npy file; None if the split will say what is wrong with them."""
    from dmlsplit.files.npy_header import read_npy_header

    with suppress(DmlError, OSError, IndexError):
        if path.is_file():  # to open a pipe would wait for its writer
            with path.open("rb") as file:
                return read_npy_header(file).shape[axis]
    return None


def _split(
    arguments: argparse.Namespace,
    sizes_or_count: tuple[int, ...] | int,
    device: str,
    progress: "Progress",
) -> "SplitFiles":
    """Split a file as the options say."""
    from dmlsplit.storage.npy import split_file

    return split_file(
        arguments.input,
        sizes_or_count,
        arguments.axis,
        Path(arguments.output or ""),
        overwrite=arguments.overwrite,
        device=device,
        progress=progress,
    )


def _run_model(arguments: argparse.Namespace) -> int:
    """Run a DxDispatch model, and print what dxdispatch.exe on Windows prints."""
    from dmlsplit.execution.dxdispatch.runner import run as run_model

    for name in ("axis", "split", "count", "output"):
        if getattr(arguments, name) is not None:
            raise InvalidArgumentError(
                f"--{name} is not allowed; a DxDispatch model sets what to split and where to "
                "write. Fix: omit it"
            )
    device = _device(arguments.device)
    run_model(arguments.input, device, output=print_result, overwrite=arguments.overwrite)
    return EXIT_OK


def _device(name: str) -> "Device":
    """The device of --device; if auto becomes the CPU, a note says why."""
    from dmlsplit.backends.find import DEVICE
    from dmlsplit.execution.device import Device

    if name != "auto" and not DEVICE.fullmatch(name):
        raise InvalidArgumentError(f"--device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    device = Device(None if name == "auto" else name)
    if device.reason is not None:
        print_message(f"note: dmlsplit uses the CPU, because {device.reason}")
    return device
