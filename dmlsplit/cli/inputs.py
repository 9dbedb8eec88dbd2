"""Parts that commands share: parsers, types of arguments, and the splits to check."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from dmlsplit.cli.terminal import EXIT_UNUSABLE, print_message, progress_bar
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import counted, value_text

if TYPE_CHECKING:
    from dmlsplit.lint.target import Target
    from dmlsplit.models.discovery import Scan
    from dmlsplit.models.onnx.dimensions import FixedSizes

PATH_OR_RULE = "PATH|RULE-ID|HRESULT"
# A value of --ort that is not of this form is a path.
_VERSION = re.compile(r"[0-9][0-9.]*")
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# Exit statuses of every command; a command may reword them.
_STATUSES = {
    EXIT_UNUSABLE: "wrong usage, or a file could not be read or written",
    130: "interrupted",
}


def epilog(statuses: Mapping[int, str]) -> str:
    """The end of a help: exit statuses."""
    meanings = sorted({**_STATUSES, **statuses}.items())
    lines = "".join(f"\n  {code:<3}  {text}" for code, text in meanings)
    return f"exit status:{lines}"


def add_command(
    commands: Commands,
    command: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    examples: str,
    statuses: Mapping[int, str],
    more: str = "",
) -> argparse.ArgumentParser:
    """Add a command named like its function.

    Its help begins with the description and the examples, and ends with `more` and the statuses.
    """
    parser = commands.add_parser(
        command.__name__.strip("_"),
        help=summary,
        description=f"{description.rstrip()}\n\nexamples:\n{examples.rstrip()}",
        epilog=more + epilog(statuses),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command, command_parser=parser)
    return parser


def integer(text: str) -> int:
    """Parse an integer; argparse reports anything else."""
    try:
        return int(text)
    except ValueError:
        raise _argument_error(text, "an integer") from None


def seconds(text: str) -> float:
    """Parse a number of seconds; argparse reports anything else."""
    try:
        return float(text)
    except ValueError:
        raise _argument_error(text, "a number of seconds, such as 60") from None


def integers(text: str) -> tuple[int, ...]:
    """Parse ``2,1,3``; argparse reports anything else."""
    # int() also takes underscores, and digits of other scripts.
    if re.fullmatch(r" *-?[0-9]{1,99} *(, *-?[0-9]{1,99} *)*", text):
        return tuple(map(int, text.split(",")))
    raise _argument_error(text, "integers separated by commas, such as 2,1,3")


def dimension(text: str) -> tuple[str, int]:
    """Parse ``batch=1`` or ``images.0=1``; argparse reports anything else."""
    name, _, size = text.rpartition("=")
    if name and re.fullmatch("[0-9]{1,19}", size) and int(size) < 2**63:
        return name, int(size)
    raise _argument_error(text, "NAME=N or INPUT.AXIS=N, such as batch=1")


def _argument_error(text: str, allowed: str) -> argparse.ArgumentTypeError:
    """The error about an argument that does not have the allowed form."""
    return argparse.ArgumentTypeError(f"is {value_text(text)}; it must be {allowed}")


def add_inputs(
    parser: argparse.ArgumentParser, metavar: str = "PATH", alternative: str = ""
) -> None:
    """Add the arguments for files, and the options that describe a split without a file."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar=metavar,
        help="an ONNX model (.onnx), an OpenVINO model (.xml), a DxDispatch model or a descriptor "
        "(.json); a folder to search for .onnx and .xml models; or a quoted pattern such as "
        f"'models/**/*.onnx'{alternative}",
    )
    parser.add_argument(
        "--hidden",
        action="store_true",
        help="also search for models that are hidden or in a virtual environment",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=dimension,
        metavar="NAME=N",
        help="the size of a dynamic dimension of the inputs of ONNX models, by its name (batch=1), "
        "or by an input and an axis (images.0=1); may be repeated",
    )
    options = parser.add_argument_group("a descriptor given by options, instead of PATHs")
    options.add_argument(
        "--data-type", metavar="TYPE", help="data type of the input, such as FLOAT32"
    )
    options.add_argument("--sizes", type=integers, metavar="1,1,6,2", help="sizes of the input")
    options.add_argument(
        "--axis",
        type=integer,
        metavar="A",
        help="the axis, counted from 0 (DirectML has no negative axes)",
    )
    options.add_argument("--split", type=integers, metavar="2,1,3", help="size of each piece")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the target."""
    target = parser.add_argument_group(
        "target",
        "default: for .onnx, the newest ONNX Runtime with DirectML; for other files, an\n"
        "application that calls DirectML directly, with the newest feature level",
    )
    target.add_argument(
        "--ort",
        nargs="?",
        const="",
        metavar="VERSION",
        help="ONNX Runtime of this version, such as 1.17, with the DirectML.dll of its package, "
        "whatever the build of Windows (default: the newest with a DirectML package)",
    )
    target.add_argument(
        "--winml",
        metavar="BUILD|VERSION",
        help="Windows ML as a part of a build of Windows, such as 22000, with the DirectML.dll of "
        "that build; or a version of its package, such as 2.5",
    )
    target.add_argument(
        "--directml",
        metavar="VERSION",
        help="an application that calls DirectML directly and ships this DirectML.dll, such as "
        "1.8.0; with --ort, the DirectML.dll that lies next to the program",
    )
    target.add_argument(
        "--windows",
        metavar="BUILD",
        help="an application that calls DirectML directly, with the DirectML.dll in a build of "
        "Windows, such as 22621",
    )
    target.add_argument(
        "--feature-level",
        metavar="L",
        help="an application that calls DirectML directly, at a feature level, such as 2_0, or 4.1",
    )


_TARGET_OPTIONS = ("ort", "winml", "directml", "windows", "feature_level")


def move_path_from_ort(arguments: argparse.Namespace) -> None:
    """Make a value of --ort that is not a version one of the paths; argparse takes any word."""
    if arguments.ort and not _VERSION.fullmatch(arguments.ort.strip()):
        arguments.paths.append(arguments.ort)
        arguments.ort = ""


def target_of(arguments: argparse.Namespace) -> Target:
    """The target that the options name, or the default one."""
    from dmlsplit.lint.target import default_target, resolve_target

    options = {name: getattr(arguments, name) for name in _TARGET_OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    target = resolve_target(**given) if given else default_target()
    return replace(target, options=_given_options(arguments, given))


def _given_options(arguments: argparse.Namespace, targets: Mapping[str, str]) -> str:
    """The options on the command line, for commands that do the same again."""
    from dmlsplit.lint.commands import options

    words = [
        f"--{name.replace('_', '-')} {value.strip()}".strip() for name, value in targets.items()
    ]
    words += [options(arguments.dim)] if arguments.dim else []
    words += ["--hidden"] if arguments.hidden else []
    return " ".join(words)


def windows_note(arguments: argparse.Namespace) -> str | None:
    """What the other options would mean, if an ONNX model is checked for a Windows build."""
    has_onnx = any(path.lower().endswith(".onnx") for path in arguments.paths)
    if arguments.windows is None or not has_onnx:
        return None
    return (
        f"note: --windows {arguments.windows} is for an application that calls DirectML "
        "directly; "
        f"--winml {arguments.windows} is Windows ML of that build, and --ort is ONNX Runtime, "
        "which brings its own DirectML.dll"
    )


def scan_inputs(arguments: argparse.Namespace) -> Scan:
    """The splits of the paths or the options; unreadable files are reported."""
    if (scan := _option_scan(arguments)) is not None:
        return scan
    from dmlsplit.models.discovery import scan_paths

    sizes = _fixed_sizes(arguments.dim)
    with progress_bar("scan") as progress:
        scan = scan_paths(arguments.paths, progress, sizes, include_hidden=arguments.hidden)
    _check_onnx_options(arguments, scan.files)
    _print_scan_notes(scan)
    return scan


def _option_scan(arguments: argparse.Namespace) -> Scan | None:
    """The split that the options give; None if there are paths instead."""
    values = {name: getattr(arguments, name) for name in ("data_type", "sizes", "axis", "split")}
    missing = [f"--{name.replace('_', '-')}" for name, value in values.items() if value is None]
    if missing and len(missing) < len(values) and not arguments.paths:
        arguments.command_parser.error(
            f"a descriptor without a file also needs {', '.join(missing)}"
        )
    if (len(missing) == len(values)) != bool(arguments.paths):
        arguments.command_parser.error(
            "give either PATHs, such as model.onnx, or all of --data-type, --sizes, --axis and "
            "--split"
        )
    if missing:
        return None
    _refuse_onnx_options(arguments, "a descriptor given by options", "give numbers in --sizes")
    from dmlsplit.models.discovery import Scan, option_site

    return Scan((option_site(*values.values()),), ())


def _check_onnx_options(arguments: argparse.Namespace, files: Sequence[str]) -> None:
    """Refuse options that apply to none of the files; note those that apply to some of them."""
    from dmlsplit.lint.advice_texts import Advice

    others = [file for file in files if not file.lower().endswith(".onnx")]
    if others and len(others) == len(files):
        is_ir = others[0].lower().endswith(".xml")
        fix = Advice.FIX_SIZES_IN_OPENVINO if is_ir else "give sizes in the file"
        _refuse_onnx_options(arguments, others[0], fix)
    elif others and (arguments.ort is not None or arguments.winml is not None):
        print_message(
            "note: --ort and --winml apply to ONNX models only; for other files, such as "
            f"{others[0]}, an application calls DirectML directly"
        )


def _refuse_onnx_options(arguments: argparse.Namespace, subject: str, fix_of_dim: str) -> None:
    """Refuse options of ONNX models for something else."""
    for option in ("ort", "winml"):
        if getattr(arguments, option) is not None:
            raise InvalidArgumentError(
                f"--{option} applies to ONNX models only; {subject} is passed to DirectML "
                "unchanged. Fix: give --directml, --windows or --feature-level"
            )
    if arguments.dim:
        given = ", ".join(f"{name}={size}" for name, size in arguments.dim)
        raise InvalidArgumentError(
            f"--dim is {given}; it applies to ONNX models only. Fix: {fix_of_dim}"
        )


def _print_scan_notes(scan: Scan) -> None:
    """Print which files were not read or left out, and which sizes no model uses."""
    from dmlsplit.models.discovery import SKIPPED

    for file, message in scan.unreadable:
        print_message(f"error: {file}: {message}")
    if scan.skipped_count:
        skipped = counted(scan.skipped_count, "model file")
        print_message(f"note: skipped {skipped} ({SKIPPED}); name them, or give --hidden")
    for name, fix in scan.unused:
        print_message(
            f"note: --dim {name}: no input of these models has a dynamic dimension of that name. "
            f"Fix: {fix}"
        )


def _fixed_sizes(pairs: Sequence[tuple[str, int]]) -> FixedSizes | None:
    """The sizes of --dim; None without any."""
    if not pairs:
        return None
    from dmlsplit.models.onnx.dimensions import FixedSizes

    sizes: dict[str, int] = {}
    for name, size in pairs:
        if sizes.setdefault(name, size) != size:
            raise InvalidArgumentError(
                f"--dim gives {name} the sizes {sizes[name]} and {size}. Fix: give one"
            )
    return FixedSizes(sizes)
