"""Feature levels, and the types of the capability table's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.errors import InvalidArgumentError


class FeatureLevel(IntEnum):
    """DML_FEATURE_LEVEL, with the values of DirectML.h. `str` gives the short name, ``3_0``."""

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
    def parse(cls, value: Level) -> FeatureLevel:
        """Read a level from ``"4_1"``, ``"4.1"``, ``"DML_FEATURE_LEVEL_4_1"`` or ``0x4100``.

        Raises
        ------
        InvalidArgumentError
            If there is no such level; floats are refused: 5.1 and 5.10 are the same.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            if value in cls._value2member_map_:
                return cls(value)
        elif isinstance(value, str):
            short = value.strip().upper().removeprefix("DML_FEATURE_LEVEL_").replace(".", "_")
            if f"LEVEL_{short}" in cls.__members__:
                return cls[f"LEVEL_{short}"]
        raise InvalidArgumentError(
            f"feature level is {value!r}; it must be one of {', '.join(map(str, cls))}"
        )

    def __str__(self) -> str:
        return self.name.removeprefix("LEVEL_")


# What `FeatureLevel.parse` reads.
Level: TypeAlias = FeatureLevel | str | int


@dataclass(frozen=True, slots=True)
class TensorSupport:
    """What one tensor of the operator may be: dimension counts and data types."""

    minimum_dimensions: int
    maximum_dimensions: int
    data_types: frozenset[TensorDataType]


@dataclass(frozen=True, slots=True)
class WindowsBuild:
    """The first Windows build whose own DirectML.dll has a level."""

    build: int
    name: str
    # `documented`, or `inferred` from the level that the build's SDK selects; and where.
    basis: str = field(default="documented", compare=False)
    source: str = field(default="", compare=False)

    @property
    def is_documented(self) -> bool:
        """Whether a document of Microsoft names the build."""
        return self.basis == "documented"


@dataclass(frozen=True, slots=True)
class LevelSupport:
    """One row of the table."""

    level: FeatureLevel
    directml: str  # first DirectML version with the level, such as "1.8.0"
    public: bool  # whether that version was made widely available
    windows: WindowsBuild | None  # None if no build with that version is documented
    input_tensor: TensorSupport
    output_tensors: TensorSupport
    source: str  # where the row is documented


def directml_version(text: str) -> tuple[int, ...]:
    """A DirectML version as three numbers that compare; 1.8 means 1.8.0."""
    parts = str(text).strip().split(".")
    if not (1 <= len(parts) <= 4 and all(p.isascii() and p.isdecimal() for p in parts)):
        raise InvalidArgumentError(f"DirectML version is {text!r}; it must look like 1.8.0")
    # A fourth part is a build number that carries no features.
    return tuple(map(int, [*parts, "0", "0"][:3]))
