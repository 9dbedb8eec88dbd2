"""Feature levels, and the support table of feature_levels.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX, TensorDataType
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.files.fields import Field
from dmlsplit.forks import late_import
from dmlsplit.messages import did_you_mean
from dmlsplit.resources import feature_levels_text, parsed_yaml


class FeatureLevel(IntEnum):
    """DML_FEATURE_LEVEL, with the values of DirectML.h. `str` gives the short name, ``3_0``.

    A level accepts all that lower levels accept (Microsoft, "DirectML feature level history").

    See Also
    --------
    minimum_feature_level : The lowest level that accepts a descriptor.
    Device : A device has a level.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> level = dml.FeatureLevel.parse("DML_FEATURE_LEVEL_4_1")
    >>> str(level), hex(level)
    ('4_1', '0x4100')
    >>> level < dml.FeatureLevel.LEVEL_5_0
    True
    """

    LEVEL_1_0 = 0x1000
    LEVEL_2_0 = 0x2000
    LEVEL_2_1 = 0x2100
    LEVEL_3_0 = 0x3000
    LEVEL_3_1 = 0x3100
    LEVEL_4_0 = 0x4000
    LEVEL_4_1 = 0x4100
    LEVEL_5_0 = 0x5000
    LEVEL_5_1 = 0x5100
    LEVEL_5_2 = 0x5200
    LEVEL_6_0 = 0x6000
    LEVEL_6_1 = 0x6100
    LEVEL_6_2 = 0x6200
    LEVEL_6_3 = 0x6300
    LEVEL_6_4 = 0x6400

    @classmethod
    def parse(cls, value: "FeatureLevel | str | int") -> "FeatureLevel":
        """Read a level from ``"4_1"``, ``"4.1"``, ``"DML_FEATURE_LEVEL_4_1"`` or ``0x4100``.

        Parameters
        ----------
        value : FeatureLevel, str or int
            The name, in any case, with or without ``DML_FEATURE_LEVEL_``; or the value.

        Returns
        -------
        FeatureLevel
            The level.

        Raises
        ------
        InvalidArgumentError
            If there is no such level, or for a float: 5.1 and 5.10 would be the same.
        """
        return parse_level(value)

    # Signatures show defaults by their repr, which here is what a program would write.
    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name.removeprefix("LEVEL_")


def parse_level(value: FeatureLevel | str | int, name: str = "feature level") -> FeatureLevel:
    """`FeatureLevel.parse`; `name` is that of the argument in errors."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value in FeatureLevel._value2member_map_:
            return FeatureLevel(value)
    elif isinstance(value, str):
        short = value.strip().upper().removeprefix("DML_FEATURE_LEVEL_").replace(".", "_")
        if f"LEVEL_{short}" in FeatureLevel.__members__:
            return FeatureLevel[f"LEVEL_{short}"]
    names = list(map(str, FeatureLevel))
    near = did_you_mean(str(value).replace(".", "_"), names)
    raise InvalidArgumentError(f"{name} is {value!r}; it must be one of {', '.join(names)}{near}")


# The level of a check or a device that names none.
NEWEST = max(FeatureLevel)


@dataclass(frozen=True, slots=True)
class WindowsBuild:
    """The first Windows build whose own DirectML.dll supports a level."""

    build: int
    name: str
    # `documented`, or `inferred` from the level that the build's SDK selects by default.
    basis: str = field(default="documented", compare=False)
    source: str = field(default="", compare=False)

    @property
    def is_documented(self) -> bool:
        """Whether Microsoft's documentation names the build."""
        return self.basis == "documented"


class LevelSupport(NamedTuple):
    """One row of the table."""

    level: FeatureLevel
    # The first version of DirectML with the level, such as "1.8.0".
    directml: str
    # Whether that version was widely available.
    is_public: bool
    # The first build of Windows with the level; None if none is documented.
    windows: WindowsBuild | None
    # What the level accepts. Microsoft's table has one row for the input and every output.
    minimum_dimensions: int
    maximum_dimensions: int
    data_types: frozenset[TensorDataType]
    # The documentation of the row.
    source: str


def directml_version(text: str, name: str = "DirectML version") -> tuple[int, ...]:
    """A DirectML version as three numbers that can be compared; 1.8 means 1.8.0."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}", str(text).strip()):
        raise InvalidArgumentError(f"{name} is {text!r}; it must look like 1.8.0")
    # A fourth part is a build number; builds of a version have the same features.
    return tuple(map(int, [*str(text).split("."), "0", "0"][:3]))


class TableError(ValueError):
    """A value of feature_levels.yaml is missing or wrong."""


@cache
def support_table() -> Mapping[FeatureLevel, LevelSupport]:
    """The rows of feature_levels.yaml, lowest level first."""
    with late_import():
        return parse_table(feature_levels_text())


def level_for_directml(version: str, name: str = "DirectML version") -> FeatureLevel:
    """The highest level that a DirectML version, such as ``"1.8.0"``, supports.

    `name` is that of the argument in errors, here and in the functions below.
    """
    numbers = directml_version(version, name)
    rows = support_table().values()
    levels = [row.level for row in rows if directml_version(row.directml) <= numbers]
    return _highest(levels, f"{name} is {version!r}; the first release is 1.0.0")


def level_for_windows(build: int, name: str = "Windows build") -> FeatureLevel:
    """The highest level documented for the DirectML.dll inside a Windows build."""
    rows = support_table().values()
    levels = [row.level for row in rows if row.windows and row.windows.build <= build]
    return _highest(levels, f"{name} is {build}; the first build with DirectML is 18362")


def _highest(levels: list[FeatureLevel], refusal: str) -> FeatureLevel:
    """The highest of these levels; without one, an InvalidArgumentError with this text."""
    if not levels:
        raise InvalidArgumentError(refusal)
    return max(levels)


def parse_table(text: str) -> Mapping[FeatureLevel, LevelSupport]:
    """Read a support table; ignore unknown keys. A TableError names the path of a bad value."""
    from yaml import YAMLError  # here, so that `import dmlsplit` does not load it

    try:
        return _rows(Field(parsed_yaml(text)))
    except (YAMLError, InvalidArgumentError) as error:
        raise TableError(f"feature_levels.yaml: {' '.join(str(error).split())}") from None


def _rows(table: Field) -> Mapping[FeatureLevel, LevelSupport]:
    """The rows of a table, which must have one for each level, in order."""
    entries = table.get("levels").items()
    if len(entries) != len(FeatureLevel):
        raise table.get("levels").error(f"one entry for each of the {len(FeatureLevel)} levels")
    rows: dict[FeatureLevel, LevelSupport] = {}
    for entry, level in zip(entries, FeatureLevel, strict=True):
        rows[level] = _row(entry, level, next(reversed(rows.values()), None))
    return rows


def _row(entry: Field, level: FeatureLevel, previous: LevelSupport | None) -> LevelSupport:
    """The row of a level; it may rely on the `previous` one."""
    name = f"DML_FEATURE_LEVEL_{level}"
    if entry.get("name").value != name:
        raise entry.get("name").error(f"{name}, as levels are listed in rising order")
    directml = entry.get("directml")
    directml.read(directml_version, "a version such as 1.8.0, in quotes")
    # A level without `split` accepts what the level before accepts.
    if previous and "split" not in entry.value:
        low = previous.minimum_dimensions
        high = previous.maximum_dimensions
        data_types = previous.data_types
    else:
        low, high, data_types = _support(entry.get("split"))
    return LevelSupport(
        level,
        directml=directml.text(),  # YAML reads 1.10 without quotes as 1.1
        is_public=bool(entry.value.get("public", True)),
        windows=_windows_build(entry.get("windows")),
        minimum_dimensions=low,
        maximum_dimensions=high,
        data_types=data_types,
        source=str(entry.get("source").value),
    )


def _windows_build(entry: Field) -> WindowsBuild | None:
    """The field ``windows`` of a row."""
    if entry.value is None:
        return None
    build = entry.get("build").integer(1)
    return WindowsBuild(build, *(str(entry.get(key).value) for key in ("name", "basis", "source")))


def _support(split: Field) -> tuple[int, int, frozenset[TensorDataType]]:
    """The field ``split`` of a row: the fewest and most dimensions, and the data types."""
    allowed = f"[least, most], from 1 to {DIMENSION_COUNT_MAX}"
    low, high = split.get("dimension_counts").read(_dimension_counts, allowed)
    data_types = [
        entry.read(TensorDataType.parse, "a data type such as FLOAT32")
        for entry in split.get("data_types").items()
    ]
    return low, high, frozenset(data_types)


def _dimension_counts(value: list[int]) -> tuple[int, int]:
    """The fewest and most dimensions; a ValueError if there cannot be such limits."""
    low, high = value
    if not 1 <= low <= high <= DIMENSION_COUNT_MAX:
        raise ValueError(value)
    return low, high
