"""``dmlsplit levels``: what feature levels, ONNX Runtime and Windows ML accept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import EXIT_OK, print_result
from dmlsplit.directml.levels import LevelSupport, support_table
from dmlsplit.directml.tensor import TensorDataType

if TYPE_CHECKING:
    from dmlsplit.lint.runtimes import Cell, Release

_DESCRIPTION = """\
Show what Split accepts at each feature level. Show also the first DirectML
release with the level, and the first Windows build whose own DirectML.dll is
known to have it. Then show what each ONNX Runtime and Windows ML loads, the
DirectML that it brings, and the versions of Split that its provider runs."""

_LEGEND = """+ added to the types of the level before; same: no others; f32 is FLOAT32
* not widely available; the next DirectML in the table has the level too
? inferred from the SDK of the build, not documented"""

RUNTIME_COLUMNS = ("runtime", "DirectML", "level", "opset", "IR", "versions of Split")

_RUNTIME_LEGEND = """- not found; opset and IR: the newest that loads; +: newer ones may load too
Splits of other versions, and types that a provider lacks, run on the CPU"""

_EXAMPLES = "  dmlsplit levels\n  dmlsplit levels --format json"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "show what each feature level, ONNX Runtime and Windows ML accepts"
    statuses = {EXIT_OK: "printed"}
    parser = add_command(
        commands,
        levels,
        summary=summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        statuses=statuses,
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def levels(arguments: argparse.Namespace) -> int:
    """Print the support table."""
    records = list(map(_record, support_table().values()))
    is_json = arguments.format == "json"
    tables = [level_table(), _LEGEND, runtime_lines(), _RUNTIME_LEGEND]
    document = {"schema": 1, "levels": records, **runtime_records()}
    print_result(json.dumps(document, indent=2) if is_json else "\n\n".join(tables))
    return EXIT_OK


def _record(row: LevelSupport) -> dict[str, Any]:
    """A feature level for programs."""
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
        types = " ".join(f"{kind.name[0].lower()}{kind.bits}" for kind in added)
        if before:
            types = f"+ {types}" if added else "same"
        directml = row.directml if row.is_public else f"{row.directml}*"
        lines.append(f"{row.level!s:<5}  {directml:<8}  {windows:<26}  {ranks:<5}  {types}")
        before = row.data_types
    return "\n".join(lines)


def runtime_lines() -> str:
    """The table of runtimes as text that fits 80 columns."""
    rows = [RUNTIME_COLUMNS, *runtime_rows()]
    return "\n".join(
        f"{name:<21}  {directml:<8}  {level:<5}  {opset:<5}  {ir:<3}  {splits}"
        for name, directml, level, opset, ir, splits in rows
    )


def runtime_rows() -> Iterator[tuple[str, ...]]:
    """The rows of the table of runtimes: the cells of `RUNTIME_COLUMNS`."""
    from dmlsplit.lint.runtimes import runtime_table, version_text
    from dmlsplit.lint.target import resolve_target

    table = runtime_table()
    releases = {release.version: release for release in table.onnxruntime}
    for release in releases.values():
        if not release.has_package:
            continue
        target = resolve_target(ort=str(release))
        level = "-" if target.is_lower_bound else str(target.level)
        yield f"ONNX Runtime {release}", _text(release.directml), level, *_cells(release)
    for build in table.windows_ml:
        target = resolve_target(winml=str(build.build))
        opset = _limit(build.opset, build.sure_opset)
        ir = _limit(build.ir, build.sure_ir)
        name = f"Windows ML {build.build}"
        yield name, target.dll.removeprefix("DirectML "), str(target.level), opset, ir, "-"
    for package in table.packages:
        target = resolve_target(winml=version_text(package.version))
        cells = _cells(releases[package.onnxruntime.value])
        name = f"Windows ML {version_text(package.version)}"
        yield name, _text(package.directml), str(target.level), *cells


def _cells(release: Release) -> tuple[str, str, str]:
    """The last cells of a row about a release: opset, IR version and versions of Split."""
    splits = " ".join(map(str, release.provider.split_versions.value))
    return _text(release.opset), _text(release.ir), splits


def _text(cell: Cell) -> str:
    """A fact as a cell."""
    return "-" if cell.value is None else str(cell.value)


def _limit(cell: Cell, sure: Cell) -> str:
    """A limit as a cell; if it is not known, what loads for certain."""
    return f"{sure.value}+" if cell.value is None else str(cell.value)


def runtime_records() -> dict[str, Any]:
    """The table of runtimes for programs: each value with its source."""
    from dmlsplit.lint.runtimes import runtime_table, version_text

    table = runtime_table()

    def cell(fact: Cell) -> dict[str, Any]:
        value = sorted(fact.value) if isinstance(fact.value, frozenset) else fact.value
        return {"value": value, "source": table.source(fact)}

    return {
        "onnxruntime": [
            {
                "version": str(release),
                "has_package": release.has_package,
                "directml": cell(release.directml),
                "opset": cell(release.opset),
                "ir": cell(release.ir),
                "split_versions": cell(release.provider.split_versions),
                "element_types": cell(release.provider.element_types),
            }
            for release in table.onnxruntime
        ],
        "windows_ml": [
            {"build": row.build, "opset": cell(row.opset), "ir": cell(row.ir)}
            for row in table.windows_ml
        ],
        "windows_ml_packages": [
            {
                "version": version_text(package.version),
                "onnxruntime": version_text(package.onnxruntime.value),
                "directml": cell(package.directml),
            }
            for package in table.packages
        ],
    }
