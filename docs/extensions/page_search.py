"""Search that finds numbers and lists a page once.

People look for 80070057, which Sphinx leaves out of its index; 0x80070057 finds the same. Every
level, such as 4_0 or DML_FEATURE_LEVEL_4_0, leads to the page of levels.
``{index} ! TERM`` makes a page the first answer to that term.
"""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish


class PageSearch(SearchEnglish):
    """English search in which numbers of four digits and more are words."""

    # Runs after searchtools.js, which drops words made of digits from a query.
    js_splitter_code = """
const wordsOnly = Search._parseQuery;
Search._parseQuery = (text) => {
  const query = text
    .replace(/\\b0x(?=[0-9a-f]{8}\\b)/gi, "") // an HRESULT, as in C
    .replace(/-*\\b((dml_)?feature[ _-]level[ _])?[1-9]_\\d\\b/gi, "feature level");
  const parsed = wordsOnly(query);
  for (const number of query.match(/\\b\\d{4,}\\b/g) ?? []) {
    parsed[1].add(number); // searched
    parsed[3].add(number); // highlighted
  }
  return parsed;
};

// The index, the title and the text of a page can each match. The best result comes last.
const ranked = Search._performSearch;
Search._performSearch = (...terms) => {
  const pages = new Set();
  const isNew = ([page, title]) => !pages.has(page + title) && pages.add(page + title);
  return ranked(...terms).reverse().filter(isNew).reverse();
};
"""

    def word_filter(self, word: str) -> bool:
        """Whether a word is part of the index."""
        return (word.isdigit() and len(word) >= 4) or super().word_filter(word)


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace the English search."""
    app.add_search_language(PageSearch)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
