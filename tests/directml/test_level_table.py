"""feature_levels.yaml: reading it, and conversions between versions and levels."""

import itertools
import re

import pytest
import yaml

import dmlsplit as dml
from dmlsplit.directml.levels import (
    NEWEST,
    LevelSupport,
    TableError,
    WindowsBuild,
    level_for_directml,
    level_for_windows,
    parse_table,
    support_table,
)
from dmlsplit.resources import feature_levels_text
from tests.support.fixtures import Patch

# https://learn.microsoft.com/windows/ai/directml/dml-version-history
VERSIONS = {
    "1.0.0": "1_0", "1.1.0": "2_0", "1.4.0": "3_0", "1.5.0": "3_1", "1.6.0": "4_0", "1.7.0": "4_1",
    "1.8.0": "5_0", "1.9.0": "5_1", "1.10.0": "5_2", "1.11.0": "6_0", "1.12.0": "6_1",
    "1.13.0": "6_2", "1.13.1": "6_2", "1.15.0": "6_4", "1.15.4": "6_4",
}  # fmt: skip


@pytest.mark.parametrize(("version", "level"), VERSIONS.items())
def test_a_directml_version_has_the_documented_level(version: str, level: str) -> None:
    assert str(level_for_directml(version)) == level


BUILDS = {
    18362: "1_0", 19041: "2_0", 19045: "2_0", 20348: "3_0", 22000: "4_0", 22621: "5_0",
    25398: "6_0", 26100: "6_2",
}  # fmt: skip


@pytest.mark.parametrize(("build", "level"), BUILDS.items())
def test_a_windows_build_has_the_level_of_the_directml_that_it_ships(
    build: int, level: str
) -> None:
    assert str(level_for_windows(build)) == level


def test_versions_before_the_first_are_refused() -> None:
    message = r"^DirectML version is '0\.9'; the first release is 1\.0\.0$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        level_for_directml("0.9")
    message = "^Windows build is 17763; the first build with DirectML is 18362$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        level_for_windows(17763)


def test_levels_are_supersets_of_the_ones_before() -> None:
    rows = list(support_table().values())
    for before, after in itertools.pairwise(rows):
        assert before.data_types <= after.data_types
        assert after.minimum_dimensions <= before.minimum_dimensions
        assert before.maximum_dimensions <= after.maximum_dimensions


TEXT = feature_levels_text()
NAMES = list(map(str, dml.FeatureLevel))


COUNTS = "levels[3].split.dimension_counts"
RANGE = "; it must be [least, most], from 1 to 8"


@pytest.mark.parametrize(
    ("old", "new", "place", "problem"),
    [
        ("DML_FEATURE_LEVEL_2_1", "2_1", "levels[2].name",
         "is 21; it must be DML_FEATURE_LEVEL_2_1, as levels are listed in rising order"),
        ('directml: "1.8.0"', "directml: new", "levels[7].directml",
         "is 'new'; it must be a version such as 1.8.0, in quotes"),
        ("build: 22000", "build: many", "levels[5].windows.build",
         "is 'many'; it must be an integer of at least 1"),
        ("build: 22000", "build: 22000.5", "levels[5].windows.build",
         "is 22000.5; it must be an integer of at least 1"),
        ('directml: "1.8.0"', "directml: 1.8", "levels[7].directml",
         "is 1.8; it must be a string"),
        ("[FLOAT32, FLOAT16", "[FLOAT32, FLOT16", "levels[0].split.data_types[1]",
         "is 'FLOT16'; it must be a data type such as FLOAT32"),
        ("counts: [1, 8]", "counts: [1, 9]", COUNTS, "is an array" + RANGE),
        ("counts: [1, 8]", "counts: [1, 2, 3]", COUNTS, "is an array" + RANGE),
        ("counts: [1, 8]", "counts: [8, 1]", COUNTS, "is an array" + RANGE),
        ("counts: [4, 4]", "counts: [0, 4]", COUNTS.replace("3", "0"), "is an array" + RANGE),
        ("counts: [1, 8]", "counts: 8", COUNTS, "is 8" + RANGE),
        ("    source:", "    sauce:", "levels[0]", "lacks 'source'"),
        ("      data_types:", "      types:", "levels[0].split", "lacks 'data_types'"),
        ("    split:", "    spill:", "levels[0]", "lacks 'split'"),
        ("  windows: {", "  windows: [1] #", "levels[0].windows",
         "is an array; it must be an object"),
        ("levels:", "levels: 1\nmore:", "levels", "is 1; it must be an array"),
    ],
)  # fmt: skip
def test_an_invalid_table_is_refused_with_the_path_of_the_value(
    old: str, new: str, place: str, problem: str
) -> None:
    assert old in TEXT
    with pytest.raises(TableError) as error:
        parse_table(TEXT.replace(old, new, 1))
    assert str(error.value) == f"feature_levels.yaml: {place} {problem}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is null; it must be an object$"),
        ("- 1", "is an array; it must be an object$"),
        ("{a: [", "while parsing"),
        (
            TEXT[: TEXT.index(f"  - name: DML_FEATURE_LEVEL_{NEWEST}")],
            f"levels is an array; it must be one entry for each of the {len(NAMES)} levels$",
        ),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("a: &x [*x]", "lacks 'levels'$"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(TableError, match=f"^feature_levels.yaml: {message}"):
        parse_table(text)


SIXTEEN_AND_32 = frozenset(
    map(dml.TensorDataType.parse, "FLOAT32 FLOAT16 INT32 INT16 UINT32 UINT16".split())
)


def test_an_entry_becomes_a_row_and_later_levels_inherit_what_it_supports(
    monkeypatch: Patch,
) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)  # some builds of PyYAML lack it
    rows = parse_table(TEXT)
    assert list(rows) == list(dml.FeatureLevel)
    windows = WindowsBuild(19041, "Windows 10 2004")
    level = dml.FeatureLevel.LEVEL_2_0
    row = LevelSupport(
        level=level,
        directml="1.1.0",
        is_public=True,
        windows=windows,
        minimum_dimensions=4,
        maximum_dimensions=4,
        data_types=SIXTEEN_AND_32,
        source="version history",
    )
    assert rows[level] == row
    hidden = rows[dml.FeatureLevel.LEVEL_2_1]
    assert (hidden.directml, hidden.is_public, hidden.windows) == ("1.2.0", False, None)
    assert (hidden.minimum_dimensions, hidden.maximum_dimensions) == (4, 4)
    of_8_bits = frozenset(map(dml.TensorDataType.parse, ("INT8", "UINT8")))
    assert hidden.data_types == SIXTEEN_AND_32 | of_8_bits
    later = rows[dml.FeatureLevel.LEVEL_3_0]
    assert (later.minimum_dimensions, later.maximum_dimensions) == (1, 8)


def test_feature_levels_yaml_has_only_known_keys() -> None:
    """This covers keys that are not read; `parse_table` has checked the types of the others."""
    table = yaml.safe_load(TEXT)
    assert table.keys() == {"schema", "operator", "levels"}
    assert (table["schema"], table["operator"]) == (1, "DML_OPERATOR_SPLIT")
    for row, level in zip(table["levels"], dml.FeatureLevel, strict=True):
        windows = row["windows"] or {"basis": "documented", "name": "-", "source": "-"}
        assert row.keys() - {"split", "public"} == {*"name directml windows source".split()}
        assert (row["name"], row.get("public", False)) == (f"DML_FEATURE_LEVEL_{level}", False)
        assert re.fullmatch(r"1\.\d+\.\d+", row["directml"])
        if split := row.get("split"):
            assert split.keys() == {"dimension_counts", "data_types"}
            assert len(set(split["data_types"])) == len(split["data_types"]) > 0
        assert windows.keys() - {"build"} == {"name", "basis", "source"}
        assert windows["basis"] in ("documented", "inferred")
        assert all((row["source"], windows["name"], windows["source"]))
