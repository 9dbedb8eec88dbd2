"""DML_FEATURE_LEVEL and DirectML versions as values."""

import pytest

import dmlsplit as dml
from dmlsplit.directml.levels import NEWEST, WindowsBuild, directml_version

# Those of DirectML 1.15; a later level comes after them.
LEVELS = "1_0 2_0 2_1 3_0 3_1 4_0 4_1 5_0 5_1 5_2 6_0 6_1 6_2 6_3 6_4".split()


def test_levels_have_the_values_of_directml_h() -> None:
    names = [str(level) for level in dml.FeatureLevel]
    assert names[: len(LEVELS)] == LEVELS
    values = [f"0x{name.replace('_', '')}00" for name in names]
    assert [hex(level) for level in dml.FeatureLevel] == sorted(values)


def test_without_a_level_the_newest_one_is_meant() -> None:
    assert max(dml.FeatureLevel) == dml.Device("cpu").feature_level
    tensor = dml.TensorDesc("FLOAT32", (2,))
    desc = dml.SplitOperatorDesc.from_sizes(tensor, axis=0, sizes=(1, 1))
    assert dml.validate(desc).level == str(max(dml.FeatureLevel))


@pytest.mark.parametrize(
    "text", ["4_1", "4.1", " dml_feature_level_4_1 ", "DML_FEATURE_LEVEL_4_1", 0x4100]
)
def test_a_level_is_read_from_any_of_its_names(text: object) -> None:
    assert dml.FeatureLevel.parse(text) is dml.FeatureLevel.LEVEL_4_1


@pytest.mark.parametrize("text", ["4_2", "", 4.1, 41, None, True, "LEVEL_4_1"])
def test_an_unknown_level_is_refused_with_the_allowed_ones(text: object) -> None:
    allowed = rf"must be one of 1_0, 2_0, 2_1, .*, {NEWEST}(\. Did you mean 4_1\?)?$"
    with pytest.raises(dml.InvalidArgumentError, match=f"^feature level is {text!r}; it {allowed}"):
        dml.FeatureLevel.parse(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1", (1, 0, 0)),
        (" 1.8 ", (1, 8, 0)),
        ("1.13.1", (1, 13, 1)),
        ("1.15.4.77", (1, 15, 4)),  # a build number carries no features
    ],
)
def test_a_directml_version_is_read_as_three_numbers(text: str, version: tuple[int, ...]) -> None:
    assert directml_version(text) == version


@pytest.mark.parametrize("text", ["", "1.x", "1..0", "-1", "1.8.0.0.0", "1.\u0663"])
def test_a_text_that_is_not_a_version_is_refused(text: str) -> None:
    message = "^DirectML version is .*; it must look like 1.8.0$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        directml_version(text)


def test_a_windows_build_is_documented_unless_its_basis_is_inferred() -> None:
    assert WindowsBuild(22621, "Windows 11 22H2").is_documented
    assert not WindowsBuild(26100, "Windows 11 24H2", "inferred").is_documented
