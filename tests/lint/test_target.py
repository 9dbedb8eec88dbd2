"""Targets: feature levels, DirectML versions and Windows builds."""

import pytest

import dmlsplit as dml
from dmlsplit.lint.target import level_releases, resolve_target


@pytest.mark.parametrize(
    ("asked", "level", "shown"),
    [
        ({}, "6_4", "feature level 6_4"),
        ({"feature_level": "2.0"}, "2_0", "feature level 2_0"),
        ({"directml": "1.8.0"}, "5_0", "DirectML 1.8.0 (feature level 5_0)"),
        ({"directml": "1.3.0"}, "2_1", "DirectML 1.3.0 (feature level 2_1)"),
        ({"windows": "10.0.22621.1848"}, "5_0", "Windows build 22621 (feature level 5_0)"),
        ({"windows": "19045"}, "2_0", "Windows build 19045 (feature level 2_0)"),
        ({"feature_level": "5_0", "via": "ort"}, "5_0", "feature level 5_0 through ONNX Runtime"),
    ],
)
def test_a_requested_level_version_or_build_becomes_a_target(
    asked: dict[str, str], level: str, shown: str
) -> None:
    target = resolve_target(**asked)
    assert str(target.level) == level
    assert str(target) == shown


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"windows": "22H3"}, "must look like 22621"),
        ({"windows": "9" * 5000}, "must look like 22621"),
        ({"windows": "\u0662\u0662\u0666\u0662\u0661"}, "must look like 22621"),
        ({"via": "ort", "ort_version": "new"}, "--ort-version is 'new'; it must look like"),
        ({"ort_version": "1.14"}, "--ort-version needs --via ort"),
        ({"via": "ort", "ort_version": "0.9"}, "--ort-version is 0.9; it must be at least 1.0"),
    ],
)
def test_levels_and_releases_that_do_not_exist_are_refused(
    asked: dict[str, str], message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        resolve_target(**asked)


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
    found = level_releases(dml.FeatureLevel.parse(level))
    assert str(found) == f"level {level} ({releases})"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"directml": "1.16.0"}, "DirectML 1.16.0, checked as 1.15, the newest known ("),
        ({"directml": "1.15.4"}, "DirectML 1.15.4 ("),
        ({"directml": "1.3.0"}, "DirectML 1.3.0 ("),
        ({"windows": "26101"}, "Windows build 26101, checked as 26100, the newest known ("),
        ({"windows": "26100"}, "Windows build 26100 ("),
        ({"windows": "25398"}, "Windows build 25398 ("),
        ({"feature_level": "6_4"}, "feature level 6_4"),
        ({"via": "ort", "ort_version": "1.24.4"}, "feature level 6_4 through ONNX Runtime 1.24"),
        (
            {"via": "ort", "ort_version": "2.0", "directml": "9.9.9"},
            "DirectML 9.9.9, checked as 1.15, the newest known (feature level 6_4) "
            "through ONNX Runtime 2.0, checked as 1.24, the newest known",
        ),
    ],
)
def test_a_target_newer_than_all_known_ones_names_the_one_that_is_checked(
    asked: dict[str, str], name: str
) -> None:
    found = str(resolve_target(**asked))
    assert found.startswith(name)
    assert ("checked as" in found) == ("checked as" in name)
