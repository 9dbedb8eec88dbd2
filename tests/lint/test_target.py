"""Targets: feature levels, DirectML versions, Windows builds, ONNX Runtime and Windows ML."""

from dataclasses import replace

import pytest

import dmlsplit as dml
from dmlsplit.directml.levels import NEWEST, support_table
from dmlsplit.lint import target
from dmlsplit.lint.runtimes import runtime_table
from dmlsplit.lint.target import level_releases, resolve_target
from tests.support.fixtures import Patch

# The newest DirectML and build of Windows in the table of levels.
DIRECTML = support_table()[NEWEST].directml.removesuffix(".0")
BUILD = max(row.windows.build for row in support_table().values() if row.windows)


@pytest.mark.parametrize(
    ("options", "level", "text"),
    [
        ({}, str(NEWEST), f"feature level {NEWEST}"),
        ({"feature_level": "2.0"}, "2_0", "feature level 2_0"),
        ({"directml": "1.8.0"}, "5_0", "DirectML 1.8.0 (feature level 5_0)"),
        ({"directml": "1.3.0"}, "2_1", "DirectML 1.3.0 (feature level 2_1)"),
        ({"windows": "10.0.22621.1848"}, "5_0", "Windows build 22621 (feature level 5_0)"),
        ({"windows": "19045"}, "2_0", "Windows build 19045 (feature level 2_0)"),
        ({"ort": "1.24"}, "6_4", "ONNX Runtime 1.24 (DirectML 1.15.4, feature level 6_4)"),
        ({"ort": "1.14.1"}, "5_2", "ONNX Runtime 1.14 (DirectML 1.10.1, feature level 5_2)"),
        ({"ort": "1.3"}, "2_0", "ONNX Runtime 1.3 (feature level 2_0 or higher)"),
        (
            {"ort": "1.17", "directml": "1.8.0"},
            "5_0",
            "ONNX Runtime 1.17 (DirectML 1.8.0, feature level 5_0)",
        ),
        (
            {"winml": "19041"},
            "2_0",
            "Windows ML of Windows build 19041 (DirectML 1.1.0, feature level 2_0)",
        ),
        (
            {"winml": "2.5.96"},
            "6_4",
            "Windows ML 2.5 with ONNX Runtime 1.28 (DirectML 1.15.4, feature level 6_4)",
        ),
    ],
)
def test_options_name_a_target(options: dict[str, str], level: str, text: str) -> None:
    chosen_target = resolve_target(**options)
    assert str(chosen_target.level) == level
    assert str(chosen_target) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": "22H2"}, "Windows 10 22H2 is 19045; Windows 11 22H2 is 22621"),
        ({"winml": "22h2"}, "--winml is 22h2, which is a version of Windows"),
        ({"windows": "9" * 5000}, "must look like 22621"),
        ({"windows": "\u0662\u0662\u0666\u0662\u0661"}, "must look like 22621"),
        ({"winml": "17763"}, "--winml is 17763; the first build with DirectML is"),
        ({"winml": "2.1"}, "--winml is 2.1; it must be one of the packages 1.8, 2.0"),
        ({"ort": "new"}, "--ort is 'new'; it must look like 1.24 or 1.24.4"),
        ({"ort": "1.2"}, "--ort is 1.2; 1.3 is the first whose DirectML provider is known"),
        (
            {"ort": "1.25"},
            "1.25, of which no DirectML package is known; .* Fix: --ort .*; or --winml",
        ),
        ({"ort": "99.1"}, "99.1, of which no DirectML package is known"),
        ({"ort": "", "windows": "22621"}, "--ort and --windows name different targets. Fix: give"),
        ({"directml": "1.8.0", "windows": "22621"}, "--directml and --windows name different"),
        ({"winml": "2.5", "feature_level": "5_0"}, "--winml and --feature-level name different"),
        ({"ort": "1.17", "directml": "new"}, "--directml is 'new'"),
    ],
)
def test_releases_that_do_not_exist_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        resolve_target(**options)


def test_ort_without_a_version_is_the_newest_with_a_package(monkeypatch: Patch) -> None:
    """A new line in the table is all that it takes, also after releases without a package."""
    table = runtime_table()
    invented = replace(table.newest, version=(1, 99))
    releases = (*table.onnxruntime, replace(invented, version=(1, 98), has_package=False), invented)
    later = replace(table, onnxruntime=releases)
    assert resolve_target(ort="") == resolve_target(ort=str(table.newest))
    monkeypatch.setattr(target, "runtime_table", lambda: later)
    assert resolve_target(ort="") == resolve_target(ort="1.99.3")
    with pytest.raises(dml.InvalidArgumentError, match=r"1.98, of which .* 1.99 is the newest"):
        resolve_target(ort="1.98")


def test_a_package_brings_its_own_provider() -> None:
    runtime = resolve_target(winml="2.3").runtime
    assert runtime is not None
    assert runtime.provider is not None
    (release,) = (row for row in runtime_table().onnxruntime if row.version == (1, 27))
    assert not release.has_package
    assert (runtime.opset, runtime.provider) == (release.opset, release.provider)


def test_windows_ml_of_a_build_between_two_rows_is_that_of_the_first() -> None:
    between, first = (resolve_target(winml=build).runtime for build in ("19045", "19041"))
    assert between is not None
    assert first is not None
    assert (between.opset, between.ir) == (first.opset, first.ir)
    assert between.opset.value == 9  # as Microsoft's page says of 19041


@pytest.mark.parametrize(
    ("level", "releases"),
    [
        ("2_0", "DirectML 1.1.0+, Windows build 19041+"),
        ("2_1", "DirectML 1.4.0+, Windows build 22000+"),  # 1.2.0 was never public
        ("4_1", "DirectML 1.7.0+, Windows build 22621+"),
        ("6_0", "DirectML 1.11.0+, Windows build 26100+"),
        ("6_3", "DirectML 1.15.0+, no known Windows build"),
        ("6_4", "DirectML 1.15.0+, no known Windows build"),
    ],
)
def test_a_requirement_names_the_first_documented_releases(level: str, releases: str) -> None:
    first_releases = level_releases(dml.FeatureLevel.parse(level))
    assert str(first_releases) == f"level {level} ({releases})"


@pytest.mark.parametrize(
    ("target_options", "name"),
    [
        ({"directml": "9.9.9"}, f"DirectML 9.9.9, checked as {DIRECTML}, the newest known ("),
        ({"directml": "1.15.4"}, "DirectML 1.15.4 ("),
        ({"directml": "1.3.0"}, "DirectML 1.3.0 ("),
        ({"windows": "99999"}, f"Windows build 99999, checked as {BUILD}, the newest known ("),
        ({"windows": f"{BUILD}"}, f"Windows build {BUILD} ("),
        ({"windows": "25398"}, "Windows build 25398 ("),
        ({"feature_level": "6_4"}, "feature level 6_4"),
        (
            {"ort": "1.24", "directml": "9.9.9"},
            f"ONNX Runtime 1.24 (DirectML 9.9.9, checked as {DIRECTML}, the newest known, feature",
        ),
    ],
)
def test_a_target_newer_than_all_known_ones_names_the_one_that_is_checked(
    target_options: dict[str, str], name: str
) -> None:
    target_text = str(resolve_target(**target_options))
    assert target_text.startswith(name)
    assert ("checked as" in target_text) == ("checked as" in name)
