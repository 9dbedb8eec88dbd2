"""What a split is judged for: a feature level, and who passes the descriptors to DirectML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dmlsplit.directml.level_table import (
    first_directml_with,
    first_windows_with,
    level_for_directml,
    level_for_windows,
)
from dmlsplit.directml.levels import FeatureLevel, WindowsBuild
from dmlsplit.errors import InvalidArgumentError

Via = Literal["directml", "ort"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a split shall run.

    Attributes
    ----------
    level : FeatureLevel
        The level that descriptors are held against.
    asked : str
        The target in the words of the user, such as ``Windows build 19041``.
    via : {"directml", "ort"}
        Who hands descriptors to DirectML: the caller, or ONNX Runtime's DirectML provider.
    """

    level: FeatureLevel
    asked: str
    via: Via = "directml"

    def __str__(self) -> str:
        level = f"feature level {self.level}"
        text = self.asked if self.asked == level else f"{self.asked} ({level})"
        return f"{text} through ONNX Runtime" if self.via == "ort" else text


@dataclass(frozen=True, slots=True)
class Requirement:
    """The least that accepts a split: a level, and which releases have it first.

    Attributes
    ----------
    level : FeatureLevel
    directml : str
        First DirectML version with the level.
    windows : WindowsBuild or None
        First Windows whose own DirectML.dll has it; None where no build is documented.
    """

    level: FeatureLevel
    directml: str
    windows: WindowsBuild | None

    def __str__(self) -> str:
        build = (
            f"Windows build {self.windows.build}" if self.windows else "no Windows build of its own"
        )
        return f"level {self.level}, DirectML {self.directml}, {build}"


def requirement(level: FeatureLevel) -> Requirement:
    """Return what a level requires, from the capability table."""
    return Requirement(level, first_directml_with(level), first_windows_with(level))


def resolve_target(
    *,
    feature_level: str | None = None,
    directml: str | None = None,
    windows: str | None = None,
    via: Via = "directml",
) -> Target:
    """Return the target that was asked for; the newest feature level if nothing was.

    Parameters
    ----------
    feature_level
        Anything that `FeatureLevel.parse` reads.
    directml
        A DirectML version, such as ``1.8.0``.
    windows
        A Windows build, ``22621`` or ``10.0.22621``: its own DirectML.dll is meant.
    via
        Who passes descriptors to DirectML.

    Raises
    ------
    InvalidArgumentError
        If more than one was given, or there is no such level, version or build.
    """
    given = [value for value in (feature_level, directml, windows) if value is not None]
    if len(given) > 1:
        raise InvalidArgumentError(
            f"target is given {len(given)} times; "
            "give one of a feature level, a DirectML version and a Windows build"
        )
    try:
        if directml is not None:
            return Target(level_for_directml(directml), f"DirectML {directml.strip()}", via)
        if windows is not None:
            build = _windows_build(windows)
            return Target(level_for_windows(build), f"Windows build {build}", via)
        level = FeatureLevel.parse(max(FeatureLevel) if feature_level is None else feature_level)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    return Target(level, f"feature level {level}", via)


def _windows_build(text: str) -> int:
    """Read ``22621``, ``10.0.22621`` or ``10.0.22621.1848``."""
    parts = text.strip().split(".")
    numbers = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts)
    if numbers and (len(parts) == 1 or (len(parts) in (3, 4) and parts[:2] == ["10", "0"])):
        return int(parts[0] if len(parts) == 1 else parts[2])
    raise ValueError(f"Windows build is {text!r}; it must look like 22621 or 10.0.22621")
