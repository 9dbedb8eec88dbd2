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
