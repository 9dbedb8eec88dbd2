"""What the commands take, and their help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

FORMATS = ("text", "json", "github", "sarif", "junit")
SHELLS = ("bash", "zsh", "fish")

_VALIDATE = """\
Find every split of each TARGET, nested bodies and functions included, and say
whether DirectML accepts it: where the split is, the descriptor it becomes, each
broken rule, the lowest feature level, DirectML version and Windows build that
accept it, and what to change. Nothing is run, and no GPU is needed.

The verdicts:
  ok                   the target accepts it as it is
  ok after legalizing  the target refuses it as it is, but accepts an equivalent
                       descriptor on the same buffers, which is shown
  refused              the target refuses it
  unknown              a size is known only when the model runs
"""

_VALIDATE_MORE = """\
formats:
  text    for people: at most 80 columns, a summary table last
  json    for programs: schema 1, described by report.schema.json of the package
  github  annotations of GitHub Actions
  sarif   SARIF 2.1.0, for code-scanning pages
  junit   JUnit XML, one suite per file and one case per split

exit status:
  0  every split is accepted
  1  a split is refused, or is ok only after legalizing (see --allow), or is
     unknown and --fail-on unknown was given
  2  wrong usage, or a file could not be read; the others are still reported
  130  interrupted

examples:
  dmlsplit validate model.onnx --feature-level 2_0
  dmlsplit validate model.onnx --windows 19041 --write-fixed fixed.onnx
  dmlsplit validate models/ 'more/**/*.onnx' --directml 1.8.0 --format sarif
  dmlsplit validate model.onnx --via ort --fail-on unknown
  dmlsplit validate --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3 \\
      --feature-level 3_0
"""

_EXPLAIN = """\
Show how a split is carried out: the bytes that are left when data type, rank and
axis are gone, the kernel that is chosen for them, its launch shape, the bytes
moved, and the time that takes at the memory bandwidth of a card.
"""

_EXPLAIN_MORE = """\
exit status:
  0  explained    1  a split is invalid, so that there is nothing to carry out
  2  wrong usage, or a file could not be read

examples:
  dmlsplit explain --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3
  dmlsplit explain model.onnx --card H200 --format json
  dmlsplit explain descriptor.json --svg picture.svg
"""


def integers(text: str) -> tuple[int, ...]:
    """Read ``2,1,3``; argparse reports anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is {text!r}; it must be integers joined by commas, such as 2,1,3"
        ) from None


def add_validate(commands: Commands) -> argparse.ArgumentParser:
    """Add ``dmlsplit validate``."""
    parser = _command(
        commands,
        "validate",
        "say which splits of a model DirectML refuses, why, and how to fix it",
        _VALIDATE,
        _VALIDATE_MORE,
    )
    _add_source(parser)
    target = parser.add_argument_group(
        "the DirectML that shall take it (default: the newest feature level)"
    ).add_mutually_exclusive_group()
    target.add_argument("--feature-level", metavar="L", help="such as 2_0, or 4.1")
    target.add_argument("--directml", metavar="VERSION", help="version of DirectML.dll, 1.8.0")
    target.add_argument(
        "--windows", metavar="BUILD", help="the DirectML.dll inside a Windows build, 22621"
    )
    parser.add_argument(
        "--via",
        choices=("directml", "ort"),
        default="directml",
        help="judge as DirectML itself (default), or as ONNX Runtime's DirectML provider: its "
        "operators and types, ranks padded to 4, level 5_0 or above, and no empty pieces",
    )
    report = parser.add_argument_group("the report")
    report.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    report.add_argument("-o", "--output", metavar="FILE", help="write the report to a file")
    report.add_argument(
        "--fail-on",
        action="append",
        choices=("unknown",),
        default=[],
        help="exit with 1 for splits of unknown size as well",
    )
    report.add_argument(
        "--allow",
        action="append",
        choices=("legalizing",),
        default=[],
        help="exit with 0 where an equivalent descriptor is accepted: your runtime legalizes",
    )
    parser.add_argument(
        "--write-fixed",
        metavar="OUT.onnx",
        help="write the model with each refused split replaced by an equivalent subgraph of "
        "standard ONNX nodes that the target accepts. Both models are run on random inputs and "
        "compared first; nothing is written if they differ. Other nodes than splits are not judged",
    )
    return parser


def add_explain(commands: Commands) -> argparse.ArgumentParser:
    """Add ``dmlsplit explain``."""
    parser = _command(
        commands,
        "explain",
        "show the geometry, kernel, launch shape and expected time of a split",
        _EXPLAIN,
        _EXPLAIN_MORE,
    )
    _add_source(parser)
    parser.add_argument(
        "--card",
        metavar="NAME",
        help="the card that the time is for: the name of a known one, such as H200 or RTX 4090; "
        "default: the first CUDA device, else H200",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--svg", metavar="FILE", help="draw which bytes of the input go to which output"
    )
    return parser


def add_run(commands: Commands) -> argparse.ArgumentParser:
    """Add the command that carries out splits."""
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
    return parser


def add_devices(commands: Commands) -> argparse.ArgumentParser:
    """Add ``dmlsplit devices``."""
    parser = _command(
        commands,
        "devices",
        "list CUDA devices: name, memory, clocks, driver, peak bandwidth",
        "List the CUDA devices of this machine, as NVML reports them.",
        "exit status:\n  0  listed, even if there is none    2  NVML failed",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser


def add_completion(commands: Commands) -> argparse.ArgumentParser:
    """Add ``dmlsplit completion``."""
    parser = _command(
        commands,
        "completion",
        "print a completion script for a shell",
        "Print the script that makes a shell complete dmlsplit's commands and options.\n"
        "It is made by the package shtab: pip install shtab",
        "examples:\n"
        "  dmlsplit completion bash > ~/.local/share/bash-completion/completions/dmlsplit\n"
        "  dmlsplit completion zsh > ~/.zfunc/_dmlsplit\n"
        "  dmlsplit completion fish > ~/.config/fish/completions/dmlsplit.fish",
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser


def _command(
    commands: Commands, name: str, summary: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="model.onnx, OpenVINO model.xml, DxDispatch or descriptor .json; a folder, which is "
        "searched for models; or a quoted pattern such as 'models/**/*.onnx'",
    )
    flags = parser.add_argument_group("a descriptor by flags, in place of a TARGET")
    flags.add_argument("--data-type", metavar="TYPE", help="such as FLOAT32")
    flags.add_argument("--sizes", type=integers, metavar="1,1,6,2", help="sizes of the input")
    flags.add_argument("--axis", type=int, metavar="A", help="from 0; DirectML's is unsigned")
    flags.add_argument("--split", type=integers, metavar="2,1,3", help="size of each piece")
