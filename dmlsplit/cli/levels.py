"""``dmlsplit levels``: the capability table of Split."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from dmlsplit.cli.terminal import ACCEPTED
from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.levels import LevelSupport, TensorSupport

if TYPE_CHECKING:
    from dmlsplit.cli.inputs import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "levels",
        help="what each feature level accepts, and which DirectML and Windows have it",
        description="The capability table of Split. Each row adds to the one before. A Windows "
        "build stands where its own DirectML.dll first has the level; f32 is FLOAT32, u16 UINT16.",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(command=levels)


def levels(arguments: argparse.Namespace) -> int:
    """Print the capability table."""
    if arguments.format == "json":
        print(json.dumps({"schema": 1, "levels": level_records()}, indent=2))
    else:
        print(level_table())
    return ACCEPTED


def level_records() -> list[dict[str, Any]]:
    """Return one JSON-ready record per level, lowest first."""
    return [_record(row) for row in capability_table().values()]


def _record(row: LevelSupport) -> dict[str, Any]:
    windows = row.windows and {"build": row.windows.build, "name": row.windows.name}
    return {
        "name": f"DML_FEATURE_LEVEL_{row.level}",
        "value": int(row.level),
        "directml": row.directml,
        "windows": windows,
        "input_tensor": _tensor_record(row.input_tensor),
        "output_tensors": _tensor_record(row.output_tensors),
        "source": row.source,
    }


def _tensor_record(support: TensorSupport) -> dict[str, Any]:
    return {
        "dimension_counts": [support.minimum_dimensions, support.maximum_dimensions],
        "data_types": [kind.name for kind in sorted(support.data_types)],
    }


def level_table() -> str:
    """Return the table as text that fits 80 columns."""
    lines = ["level  DirectML  Windows build               ranks  data types of Split"]
    before: TensorSupport | None = None
    for row in capability_table().values():
        support = row.input_tensor
        windows = f"{row.windows.build} {row.windows.name}" if row.windows else "-"
        least, most = support.minimum_dimensions, support.maximum_dimensions
        ranks = str(least) if least == most else f"{least}-{most}"
        types = _types(support, before)
        lines.append(f"{row.level!s:<5}  {row.directml:<8}  {windows:<26}  {ranks:<5}  {types}")
        before = support
    return "\n".join(lines)


def _types(support: TensorSupport, before: TensorSupport | None) -> str:
    """Return the data types that a row adds to the one before."""
    added = support.data_types - (before.data_types if before else frozenset())
    # f32 for FLOAT32, u16 for UINT16, i8 for INT8.
    names = [f"{kind.name[0].lower()}{kind.bits}" for kind in sorted(added)]
    if before is None:
        return " ".join(names)
    return "+ " + " ".join(names) if names else "same"
