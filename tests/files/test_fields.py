"""Values of documents name what is allowed."""

import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.files.fields import Field

ALLOWED = {(): "", (1,): " of at least 1", (1, 9): " from 1 to 9"}


@pytest.mark.parametrize("bounds", ALLOWED)
def test_an_error_about_an_integer_has_the_bounds_that_there_are(bounds: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Field(True, "count").integer(*bounds)
    assert str(caught.value) == f"count is true; it must be an integer{ALLOWED[bounds]}"


def test_a_long_value_is_cut_in_the_middle_so_that_its_quotes_are_shown() -> None:
    value = "a" * 100 + "z"
    shown = f"'{'a' * 27}...{'a' * 27}z'"
    assert str(Field(value, "name").error("short")) == f"name is {shown}; it must be short"


def test_a_long_name_of_a_member_is_cut_in_the_middle() -> None:
    field = Field({"a" * 100 + "z": 1}).get("a" * 100 + "z")
    assert field.path == "a" * 38 + "..." + "a" * 38 + "z"
