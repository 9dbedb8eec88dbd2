"""The examples of the site's pages that need a GPU."""

import doctest

import pytest

from tests.support.command import ROOT


@pytest.mark.parametrize("page", ["cuda-graphs", "preallocated"])
def test_the_examples_of_a_page_work_on_a_card(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    assert "import cupy" in text
    results = doctest.testfile(str(ROOT / "docs" / f"{page}.md"), module_relative=False)
    assert results.attempted > 10
    assert results.failed == 0
