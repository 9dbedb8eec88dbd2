"""``dmlsplit levels``: what each feature level accepts."""

import argparse
import json
from typing import Any

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import EXIT_OK, print_result
from dmlsplit.directml.levels import LevelSupport, support_table
from dmlsplit.directml.tensor import TensorDataType

_DESCRIPTION = """\
Show what Split accepts at each feature level. Show also the first DirectML
release with the level, and the first Windows build whose own DirectML.dll is
known to have it."""

_LEGEND = """+ added to the types of the level before; same: no others; f32 is FLOAT32
* not widely available; the next DirectML in the table has the level too
? inferred from the SDK of the build, not documented"""

_EXAMPLES = "  dmlsplit levels\n  dmlsplit levels --format json"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "show what each feature level accepts, and which DirectML and Windows have it"
    statuses = {EXIT_OK: "printed"}
    parser = add_command(commands, levels, summary, _DESCRIPTION, _EXAMPLES, statuses)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def levels(arguments: argparse.Namespace) -> int:
    """Print the support table."""
    records = list(map(_record, support_table().values()))
    is_json = arguments.format == "json"
    text = f"{level_table()}\n\n{_LEGEND}"
    print_result(json.dumps({"schema": 1, "levels": records}, indent=2) if is_json else text)
    return EXIT_OK


def _record(row: LevelSupport) -> dict[str, Any]:
    tensor = {
        "dimension_counts": [row.minimum_dimensions, row.maximum_dimensions],
        "data_types": [kind.name for kind in sorted(row.data_types)],
    }
    return {
        "name": f"DML_FEATURE_LEVEL_{row.level}",
        "value": int(row.level),
        "directml": row.directml,
        "directml_is_public": row.is_public,
        "windows": row.windows and {"build": row.windows.build, "name": row.windows.name},
        "windows_basis": row.windows and row.windows.basis,
        "windows_source": row.windows and row.windows.source,
        **dict.fromkeys(("input_tensor", "output_tensors"), tensor),
        "source": row.source,
    }


def level_table() -> str:
    """The table as text that fits 80 columns."""
    lines = ["level  DirectML  Windows build               ranks  data types of Split"]
    before: frozenset[TensorDataType] = frozenset()
    for row in support_table().values():
        windows = "-"
        if row.windows:
            doubt = "" if row.windows.is_documented else "?"
            windows = f"{row.windows.build} {row.windows.name}{doubt}"
        ranks = "-".join(map(str, sorted({row.minimum_dimensions, row.maximum_dimensions})))
        # f32 for FLOAT32, u16 for UINT16, i8 for INT8.
        added = sorted(row.data_types - before)
        names = " ".join(f"{kind.name[0].lower()}{kind.bits}" for kind in added)
        types = names if not before else f"+ {names}" if names else "same"
        directml = row.directml if row.is_public else f"{row.directml}*"
        lines.append(f"{row.level!s:<5}  {directml:<8}  {windows:<26}  {ranks:<5}  {types}")
        before = row.data_types
    return "\n".join(lines)
