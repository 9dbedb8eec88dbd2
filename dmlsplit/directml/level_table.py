"""The capability table, read from feature_levels.yaml, and looking levels up in it."""

from collections.abc import Callable, Mapping
from functools import cache

from dmlsplit.directml.levels import (
    FeatureLevel,
    LevelSupport,
    TensorSupport,
    WindowsBuild,
    directml_version,
)
from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX, TensorDataType
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.fields import Field
from dmlsplit.resources import feature_level_table


class TableError(ValueError):
    """feature_levels.yaml has a missing or wrong value."""


@cache
def capability_table() -> Mapping[FeatureLevel, LevelSupport]:
    """The rows of feature_levels.yaml, lowest level first."""
    return parse_table(feature_level_table())


def level_for_directml(version: str) -> FeatureLevel:
    """The highest level that a DirectML version, such as ``"1.8.0"``, supports."""
    wanted = directml_version(version)
    refusal = f"DirectML version is {version!r}; the first release is 1.0.0"
    return _highest(lambda row: directml_version(row.directml) <= wanted, refusal)


def level_for_windows(build: int) -> FeatureLevel:
    """The highest level documented for the DirectML.dll inside a Windows build."""
    refusal = f"Windows build is {build}; the first with DirectML is 18362"
    return _highest(lambda row: bool(row.windows and row.windows.build <= build), refusal)


def _highest(has_level: Callable[[LevelSupport], bool], refusal: str) -> FeatureLevel:
    levels = [row.level for row in capability_table().values() if has_level(row)]
    if not levels:
        raise InvalidArgumentError(refusal)
    return max(levels)


def parse_table(text: str) -> Mapping[FeatureLevel, LevelSupport]:
    """Read a capability table; a TableError has the path of a value that is missing or wrong.

    Unknown keys are not an error here; a test knows the keys of the file.
    """
    import yaml  # here, so that `import dmlsplit` does not load it

    # The C loader, where PyYAML has it, starts `dmlsplit levels` 30 ms sooner.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _rows(Field(yaml.load(text, loader)))  # noqa: S506, both loaders are safe
    except (yaml.YAMLError, InvalidArgumentError) as error:
        raise TableError(f"feature_levels.yaml: {' '.join(str(error).split())}") from None


def _rows(table: Field) -> Mapping[FeatureLevel, LevelSupport]:
    entries = table.get("levels").items()
    if len(entries) != len(FeatureLevel):
        raise table.get("levels").error(f"one entry for each of the {len(FeatureLevel)} levels")
    rows: dict[FeatureLevel, LevelSupport] = {}
    row = None
    for entry, level in zip(entries, FeatureLevel, strict=True):
        rows[level] = row = _row(entry, level, row)
    return rows


def _row(entry: Field, level: FeatureLevel, before: LevelSupport | None) -> LevelSupport:
    name = f"DML_FEATURE_LEVEL_{level}"
    if entry.get("name").value != name:
        raise entry.get("name").error(f"{name}: levels are listed in rising order")
    entry.get("directml").read(directml_version, "a version such as 1.8.0, in quotes")
    # A level without `split` accepts what the level before accepts.
    if before and "split" not in entry.value:
        tensors = before.input_tensor, before.output_tensors
    else:
        split = entry.get("split")
        tensors = _support(split.get("input_tensor")), _support(split.get("output_tensors"))
    return LevelSupport(
        level,
        str(entry.get("directml").value),
        bool(entry.value.get("public", True)),
        _windows_build(entry.get("windows")),
        *tensors,
        str(entry.get("source").value),
    )


def _windows_build(entry: Field) -> WindowsBuild | None:
    if entry.value is None:
        return None
    build = entry.get("build").read(int, "an integer")
    return WindowsBuild(build, *(str(entry.get(key).value) for key in ("name", "basis", "source")))


def _support(tensor: Field) -> TensorSupport:
    allowed = f"[least, most], from 1 to {DIMENSION_COUNT_MAX}"
    least, most = tensor.get("dimension_counts").read(_dimension_counts, allowed)
    kinds = [
        kind.read(TensorDataType.parse, "a data type such as FLOAT32")
        for kind in tensor.get("data_types").items()
    ]
    return TensorSupport(least, most, frozenset(kinds))


def _dimension_counts(value: list[int]) -> tuple[int, int]:
    least, most = value
    if not 1 <= least <= most <= DIMENSION_COUNT_MAX:
        raise ValueError(value)
    return least, most
