"""The target of a check: a feature level, and who passes the descriptors to DirectML."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from dmlsplit.directml.levels import (
    FeatureLevel,
    WindowsBuild,
    directml_version,
    level_for_directml,
    level_for_windows,
    support_table,
)
from dmlsplit.errors import InvalidArgumentError, prefix_errors

# Pull request 2057 of October 2019, the month of version 1.0, added the provider.
FIRST_RUNTIME = (1, 0)
# The last with a package of the DirectML provider: onnxruntime-directml 1.24.4, of March 2026.
LAST_RUNTIME = (1, 24)
# Who passes descriptors to DirectML: the caller, or ONNX Runtime's DirectML provider.
Via = Literal["directml", "ort"]


@dataclass(frozen=True, slots=True)
class Target:
    """What splits are checked for."""

    level: FeatureLevel
    name: str  # in the user's words, such as "Windows build 19041"
    via: Via = "directml"
    ort_version: tuple[int, ...] | None = None  # None for the newest ONNX Runtime
    directml: tuple[int, ...] | None = None  # if a version or a Windows build was asked for

    def __str__(self) -> str:
        level = f"feature level {self.level}"
        text = self.name if self.name == level else f"{self.name} ({level})"
        return text if self.via != "ort" else f"{text} through {self._onnxruntime}"

    @property
    def runtime(self) -> str:
        """What runs a model's splits."""
        return "DirectML" if self.via != "ort" else f"{self._onnxruntime} with DirectML"

    @property
    def _onnxruntime(self) -> str:
        if not self.ort_version:
            return "ONNX Runtime"
        version = "{}.{}".format(*self.ort_version)
        return f"ONNX Runtime {_as_checked(version, self.ort_version, LAST_RUNTIME)}"


def _as_checked(text: str, version: tuple[int, ...], newest: tuple[int, ...]) -> str:
    """A version, and if it is newer than any known, the newest known one."""
    known = ".".join(map(str, newest))
    return text if version <= newest else f"{text}, checked as {known}, the newest known"


@dataclass(frozen=True, slots=True)
class LevelReleases:
    """The lowest level that accepts a split, and the first releases with that level."""

    level: FeatureLevel
    directml: str  # first widely available version
    windows: WindowsBuild | None  # first whose own DirectML.dll has it; None if undocumented

    @property
    def cells(self) -> tuple[str, str, str]:
        """Level, version and build as table cells."""
        build = str(self.windows.build) if self.windows else "-"
        return str(self.level), self.directml, build

    def __str__(self) -> str:
        windows = (
            f"Windows build {self.windows.build}+" if self.windows else "no known Windows build"
        )
        return f"level {self.level} (DirectML {self.directml}+, {windows})"


@cache
def level_releases(level: FeatureLevel) -> LevelReleases:
    """The releases that a level requires, from the support table."""
    rows = [row for row in support_table().values() if row.level >= level]
    # Advice names a build only if Microsoft's documents do.
    documented = (row.windows for row in rows if row.windows and row.windows.is_documented)
    directml = next(row.directml for row in rows if row.is_public)
    return LevelReleases(level, directml, next(documented, None))


def resolve_target(
    *,
    feature_level: str | None = None,
    directml: str | None = None,
    windows: str | None = None,
    via: Via = "directml",
    ort_version: str | None = None,
) -> Target:
    """The target that one of the first three names; the newest level if all are None.

    A Windows build, such as ``22621`` or ``10.0.22621``, stands for the DirectML.dll in it.
    """
    runtime = dll = None
    rows = support_table().values()
    if directml is not None:
        with prefix_errors("--directml"):
            level = level_for_directml(directml)
        dll = directml_version(directml)
        # The third part of a version does not change the level.
        newest = max(directml_version(row.directml)[:2] for row in rows)
        name = f"DirectML {_as_checked(directml.strip(), dll[:2], newest)}"
    elif windows is not None:
        if version := _VERSIONS.get(windows.strip().upper()):
            raise InvalidArgumentError(
                f"--windows is {windows}, which is a version of Windows. Fix: give its build, "
                f"{version}"
            )
        build = _numbers("--windows", windows, _BUILD, "22621 or 10.0.22621")
        with prefix_errors("--windows"):
            level = level_for_windows(*build)
        dll = directml_version(support_table()[level].directml)
        newest = max((row.windows.build,) for row in rows if row.windows)
        name = f"Windows build {_as_checked(str(build[0]), build, newest)}"
    else:
        with prefix_errors("--feature-level"):
            level = FeatureLevel.parse(
                max(FeatureLevel) if feature_level is None else feature_level
            )
        name = f"feature level {level}"
    if ort_version is not None:
        runtime = _numbers("--ort-version", ort_version, _RUNTIME, "1.14")
        if via != "ort":
            raise InvalidArgumentError("--ort-version needs --via ort")
        if runtime < FIRST_RUNTIME:
            first = ".".join(map(str, FIRST_RUNTIME))
            raise InvalidArgumentError(
                f"--ort-version is {ort_version}; it must be at least {first}, because earlier "
                "versions have no DirectML provider"
            )
    return Target(level, name, via, runtime, dll)


# Versions of Windows that have DirectML, and their builds. Source: Microsoft, "Windows 10 release
# information" and "Windows 11 release information".
_VERSIONS = {
    "10": "such as 18362, the first build with DirectML",
    "11": "such as 22000, the first build of Windows 11",
    "1903": "18362",
    "1909": "18363",
    "2004": "19041",
    "20H2": "19042",
    "21H1": "19043",
    "21H2": "19044 in Windows 10, or 22000 in Windows 11",
    "22H2": "19045 in Windows 10, or 22621 in Windows 11",
    "23H2": "22631",
    "24H2": "26100",
    "25H2": "26200",
}
# 1.14 or 1.14.1; 22621, 10.0.22621 or 10.0.22621.1848. Only numbers in groups are used.
_RUNTIME = r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,9})?"
_BUILD = r"([0-9]{1,9})|10\.0\.([0-9]{1,9})(?:\.[0-9]{1,9})?"


def _numbers(option: str, text: str, pattern: str, example: str) -> tuple[int, ...]:
    match = re.fullmatch(pattern, text.strip())
    if not match:
        raise InvalidArgumentError(f"{option} is {text!r}; it must look like {example}")
    return tuple(map(int, filter(None, match.groups())))
