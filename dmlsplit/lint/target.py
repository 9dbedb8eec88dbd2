"""The target of a check: who passes the splits to DirectML, and the level of its DirectML.dll."""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from dmlsplit.directml.levels import (
    FeatureLevel,
    WindowsBuild,
    directml_version,
    level_for_directml,
    level_for_windows,
    parse_level,
    support_table,
)
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.lint.runtimes import (
    Cell,
    Provider,
    Release,
    Version,
    WindowsMl,
    runtime_table,
    version,
    version_text,
)


class Runtime(NamedTuple):
    """A program that loads models, and passes their splits to DirectML.

    Attributes
    ----------
    name : str
        Such as ``ONNX Runtime 1.24`` or ``Windows ML of build 19041``.
    opset, ir : Cell of int
        The newest operator set of ai.onnx and the newest IR version that it loads.
    sure_opset, sure_ir : Cell of int
        Those that it loads for certain, where the limit is not known.
    provider : Provider or None
        What its DirectML provider does; None if that is not known.
    release : tuple of int or None
        The release of ONNX Runtime in it; None if that is not known.
    """

    name: str
    opset: Cell
    ir: Cell
    sure_opset: Cell
    sure_ir: Cell
    provider: Provider | None = None
    release: Version | None = None

    @property
    def assumed_provider(self) -> Provider:
        """The provider; if it is not known, the newest one, which takes the most."""
        return self.provider or runtime_table().newest.provider


@dataclass(frozen=True, slots=True)
class Target:
    """What splits are checked for.

    Attributes
    ----------
    level : FeatureLevel
        The level of the DirectML.dll.
    dll : str
        That DirectML in the user's words, such as ``DirectML 1.8.0`` or ``feature level 2_0``.
    runtime : Runtime or None
        Who passes splits to it; None for an application that calls DirectML directly.
    directml : tuple of int or None
        The version of the DirectML.dll; None if only its level is known.
    is_lower_bound : bool
        Whether the DirectML.dll may have a higher level, because its version is not known.
    options : str
        The options of the command line that chose it, and the sizes, for commands that advice
        prints.
    """

    level: FeatureLevel
    dll: str
    runtime: Runtime | None = None
    directml: Version | None = None
    is_lower_bound: bool = False
    options: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """The target after a preposition: in a runtime, or at a level."""
        return f"{'at' if self.runtime is None else 'in'} {self}"

    def for_format(self, file_format: str) -> "Target":
        """The target for files of a format: runtimes pass only ONNX models to DirectML."""
        return self if self.runtime is None or file_format == "onnx" else resolve_target()

    def __str__(self) -> str:
        level = f"feature level {self.level}{' or higher' if self.is_lower_bound else ''}"
        dll = [part for part in dict.fromkeys((self.dll, level)) if part]
        if self.runtime is not None:
            return f"{self.runtime.name} ({', '.join(dll)})"
        return dll[0] if len(dll) == 1 else f"{dll[0]} ({dll[1]})"


@dataclass(frozen=True, slots=True)
class LevelReleases:
    """The lowest level that accepts a split, and the first releases with that level."""

    level: FeatureLevel
    # The first version of DirectML with the level that was widely available.
    directml: str
    # The first build of Windows whose own DirectML.dll has the level; None if none is documented.
    windows: WindowsBuild | None

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
    ort: str | None = None,
    winml: str | None = None,
) -> Target:
    """The target that options name; without any, the newest level and no runtime.

    The default of the command line is another one: `default_target`.

    Parameters
    ----------
    feature_level, directml, windows : str or None
        A level, a version, or a Windows build, such as ``22621`` or ``10.0.22621``, which stands
        for the DirectML.dll in it. At most one of the three.
    ort : str or None
        A release of ONNX Runtime, such as ``1.24``; empty for the newest with a DirectML package.
        `directml` may be given beside it, for another DirectML.dll than that of the package.
    winml : str or None
        A Windows build, for the Windows ML in it, or a version of the package, such as ``2.5``.

    Returns
    -------
    Target
        Who passes splits to DirectML, and the level of its DirectML.dll.

    Raises
    ------
    InvalidArgumentError
        If a version, build or level does not exist, or options contradict each other.

    Examples
    --------
    >>> print(resolve_target(directml="1.8.0"))
    DirectML 1.8.0 (feature level 5_0)
    >>> print(resolve_target(ort="1.17", directml="1.13.1"))
    ONNX Runtime 1.17 (DirectML 1.13.1, feature level 6_2)
    """
    options = {"ort": ort, "winml": winml, "directml": directml, "windows": windows}
    options["feature-level"] = feature_level
    target_options = [name for name, value in options.items() if value is not None]
    if len(target_options) > 1 and target_options != ["ort", "directml"]:
        raise InvalidArgumentError(
            f"{' and '.join(f'--{name}' for name in target_options)} name different targets. "
            "Fix: give one of them; only --directml may be given in addition to --ort"
        )
    if ort is not None:
        return _release_target(_ort_release(ort), directml)
    if winml is not None:
        return _windows_ml_target(winml)
    if directml is not None:
        return _dll_target(directml)
    if windows is not None:
        return _windows_target(windows)
    level = max(FeatureLevel)
    if feature_level is not None:
        level = parse_level(feature_level, "--feature-level")
    return Target(level, f"feature level {level}")


def default_target() -> Target:
    """The target of the command line without options: the newest ONNX Runtime with DirectML."""
    return resolve_target(ort="")


def _dll_target(text: str) -> Target:
    """A program that calls this DirectML.dll."""
    level = level_for_directml(text, "--directml")
    dll = directml_version(text)
    # The third part of a version does not change the level.
    newest = max(directml_version(row.directml)[:2] for row in support_table().values())
    name = f"DirectML {_checked_version(text.strip(), dll[:2], newest)}"
    return Target(level, name, directml=dll)


def _windows_target(text: str) -> Target:
    """A program that calls the DirectML.dll in a build of Windows."""
    build = build_number("--windows", text)
    level = level_for_windows(build, "--windows")
    newest = max(row.windows.build for row in support_table().values() if row.windows)
    name = f"Windows build {_checked_version(str(build), (build,), (newest,))}"
    return Target(level, name, directml=directml_version(support_table()[level].directml))


def _release_target(release: Release, directml: str | None) -> Target:
    """A release of ONNX Runtime with the DirectML.dll of its package, or with another one."""
    facts = release.provider
    runtime = _runtime(f"ONNX Runtime {release}", release)
    text = directml or release.directml.value
    if text is None:  # the provider does not start with a lower level than it asks for
        return Target(facts.minimum_level.value, "", runtime, is_lower_bound=True)
    dll = _dll_target(text)
    return Target(dll.level, dll.dll, runtime, dll.directml)


def _ort_release(text: str) -> Release:
    """The release of ONNX Runtime that ``--ort`` names."""
    table = runtime_table()
    if not text:
        return table.newest
    release_version = _option_version("--ort", text, "1.24 or 1.24.4")[:2]
    first = table.onnxruntime[0]
    newest = table.newest
    if release_version < first.version:
        raise InvalidArgumentError(
            f"--ort is {text}; {first} is the first whose DirectML provider is known. Fix: give "
            f"a release from {first} to {newest}"
        )
    for release in table.onnxruntime:
        if release.version == release_version and release.has_package:
            return release
    package = table.packages[-1]
    winml = version_text(package.version)
    inside = version_text(package.onnxruntime.value)
    raise InvalidArgumentError(
        f"--ort is {text}, of which no DirectML package is known; {newest} is the newest with one. "
        f"Fix: --ort {newest}; or --winml {winml}, whose package has ONNX Runtime {inside} and "
        "DirectML"
    )


def _windows_ml_target(text: str) -> Target:
    """The Windows ML that ``--winml`` names: that of a Windows build, or a package."""
    table = runtime_table()
    word = text.strip()
    is_version = re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,9})*", word)
    if not is_version or re.fullmatch(_BUILD, word):
        return _windows_build_target(build_number("--winml", text), table.windows_ml)
    package_version = version(word)[:2]
    package = next((row for row in table.packages if row.version == package_version), None)
    if package is None:
        packages = ", ".join(version_text(row.version) for row in table.packages)
        raise InvalidArgumentError(
            f"--winml is {text}; it must be one of the packages {packages}, or a Windows build "
            "such as 22621"
        )
    releases = {release.version: release for release in table.onnxruntime}
    release = releases[package.onnxruntime.value]
    dll = _dll_target(package.directml.value)
    name = f"Windows ML {version_text(package_version)} with ONNX Runtime {release}"
    return Target(dll.level, dll.dll, _runtime(name, release), dll.directml)


def _runtime(name: str, release: Release) -> Runtime:
    """The program that has a release of ONNX Runtime."""
    return Runtime(
        name,
        opset=release.opset,
        ir=release.ir,
        sure_opset=release.opset,
        sure_ir=release.ir,
        provider=release.provider,
        release=release.version,
    )


def _windows_build_target(build: int, rows: tuple[WindowsMl, ...]) -> Target:
    """The Windows ML in a build of Windows, and the DirectML.dll of that build."""
    level = level_for_windows(build, "--winml")
    row = [row for row in rows if row.build <= build][-1]
    is_newer = row == rows[-1] and build > row.build
    shown = f"{build}, checked as {row.build}, the newest known" if is_newer else str(build)
    runtime = Runtime(
        f"Windows ML of Windows build {shown}",
        opset=row.opset,
        ir=row.ir,
        sure_opset=row.sure_opset,
        sure_ir=row.sure_ir,
    )
    dll = support_table()[level].directml
    return Target(level, f"DirectML {dll}", runtime, directml_version(dll))


def _checked_version(text: str, number: Version, newest: Version) -> str:
    """A version, and if it is newer than any known, the newest known one."""
    return (
        text if number <= newest else f"{text}, checked as {version_text(newest)}, the newest known"
    )


# Versions of Windows that people give instead of a build, with what they stand for.
_FIRST_BUILDS = {
    "10": "the first Windows 10 with DirectML is 18362",
    "11": "the first Windows 11 is 22000",
    "1903": "Windows 10 1903 is 18362",
    "2004": "Windows 10 2004 is 19041",
    "20H2": "Windows 10 20H2 is 19042",
    "21H1": "Windows 10 21H1 is 19043",
    "21H2": "Windows 10 21H2 is 19044; Windows 11 21H2 is 22000",
    "22H2": "Windows 10 22H2 is 19045; Windows 11 22H2 is 22621",
    "23H2": "Windows 11 23H2 is 22631",
    "24H2": "Windows 11 24H2 is 26100",
    "25H2": "Windows 11 25H2 is 26200",
}
# A build such as 22621, 10.0.22621 or 10.0.22621.1848; its number is in one of the two groups.
_BUILD = r"([0-9]{1,9})|10\.0\.([0-9]{1,9})(?:\.[0-9]{1,9})?"


def build_number(option: str, text: str) -> int:
    """The number of a Windows build; an error of the option says what a version stands for."""
    build = text.strip()
    if stands_for := _FIRST_BUILDS.get(build.upper()):
        raise InvalidArgumentError(
            f"{option} is {text}, which is a version of Windows. Fix: give its build: {stands_for}"
        )
    match = re.fullmatch(_BUILD, build)
    if not match or not build.isascii():
        raise InvalidArgumentError(f"{option} is {text!r}; it must look like 22621 or 10.0.22621")
    return int(match[1] or match[2])


def _option_version(option: str, text: str, example: str) -> Version:
    """The version that an option gives."""
    try:
        return version(text.strip())
    except ValueError:
        raise InvalidArgumentError(f"{option} is {text!r}; it must look like {example}") from None
