"""Search that finds numbers. People look for 80070057, which Sphinx leaves out of its index.

0x80070057 finds the same. ``{index} ! TERM`` makes a page the first answer to that term.
"""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish


class NumberSearch(SearchEnglish):
    """English search in which numbers of four digits and more are words."""

    # Runs after searchtools.js, which drops words made of digits from a query.
    js_splitter_code = """
const wordsOnly = Search._parseQuery;
Search._parseQuery = (given) => {
  const query = given.replace(/\\b0x(?=[0-9a-f]{8}\\b)/gi, ""); // an HRESULT, as in C
  const parsed = wordsOnly(query);
  for (const number of query.match(/\\b\\d{4,}\\b/g) ?? []) {
    parsed[1].add(number); // searched
    parsed[3].add(number); // highlighted
  }
  return parsed;
};
"""

    def word_filter(self, word: str) -> bool:
        """Whether a word is part of the index."""
        return (word.isdigit() and len(word) >= 4) or super().word_filter(word)


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace the English search."""
    app.add_search_language(NumberSearch)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
