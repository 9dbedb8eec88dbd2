"""The site: ``sphinx-build -W --keep-going -n docs site``. It holds no date: two builds are equal.

The theme is pydata-sphinx-theme: released several times a year, readable in light and dark and on
narrow screens, and one shortcut (Ctrl K) opens its search.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "extensions")]

from pygments.lexers import PythonConsoleLexer  # noqa: E402
from sphinx.highlighting import lexers  # noqa: E402

import dmlsplit  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]

project = "dmlsplit"
version = release = dmlsplit.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "from_code",
    "page_search",
    "repository_links",
    "rule_pages",
    "summaries",
]
root_doc = "index"
# For those who work on dmlsplit: in the repository, not on the site.
exclude_patterns = [
    *("extensions", "design", "CODE_OF_CONDUCT.md", "conformance.md", "reliability.md"),
]
repository = REPOSITORY
smartquotes_action = "D"  # dashes only: quoted text is copied
toc_object_entries_show_parents = "hide"
default_role = "py:obj"
highlight_language = "none"
lexers["pycon"] = PythonConsoleLexer()  # without the empty line that ends the last doctest

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "attrs_inline"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "  # only what follows a prompt is copied
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # as in NumPy's documents: docstrings name the types for a reader
napoleon_attr_annotations = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
# With -n, a name that leads nowhere is a warning, except for fields and arguments of a docstring's
# subject, type variables, words between types, internal types of fields, other libraries' names.
nitpick_ignore_regex = [
    ("py:obj", r"[a-z_]+|numpy\.split|BoundOperator\.dispatch"),
    ("py:class", r"[a-z_ ]+|str to None|Size|Taken|Effect|IntEnum"),
    ("py:class", r"dmlsplit\.(models\.onnx\.protobuf|execution\.dxdispatch\.model)\..*"),
    ("py:class", r"(collections\.abc|enum|numpy|onnx|os|np)\..*"),
]

html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "navbar_center": [],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": "Repository", "url": REPOSITORY, "icon": "fa-brands fa-github"}],
    "show_prev_next": False,
    "show_toc_level": 2,
    "shorten_urls": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
html_sidebars = {"**": ["pages"]}
templates_path = ["_templates"]
html_title = "dmlsplit"
html_baseurl = PROJECT["urls"]["Documentation"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "extensions" / "scorer.js")
html_show_sourcelink = False
html_copy_source = False
