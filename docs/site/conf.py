"""The settings of Sphinx for the documentation site: `make docs`.

Its pages are the ones of docs/, with those of the root, and a reference that `generated` makes of
the code when the site is built.
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
sys.path.insert(0, str(SITE))

import generated  # noqa: E402 - beside this file

from ikebana import __version__  # noqa: E402

project = "ikebana"
release = version = __version__
author = copyright = "the developers of ikebana"  # noqa: A001 - Sphinx's own name
html_title = "ikebana"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["site"]
html_theme = "furo"
# Nothing is loaded from elsewhere, and the search runs in the reader's browser.
html_theme_options: dict[str, object] = {"footer_icons": []}
html_show_sphinx = False
html_copy_source = False
html_static_path = ["narrow.css"]
html_css_files = ["narrow.css"]
templates_path: list[str] = []

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
# The languages of some blocks that Pygments does not know.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
# A name between single backquotes is code.
default_role = "code"

# Pages of the root, and how pages of docs/ and the others of the root link to them.
_PAGES = {
    "](../helm/ikebana/README.md": "](chart.md",
    "](../README.md": "](index.md",
    "](../ARCHITECTURE.md": "](architecture.md",
    "](../CHANGELOG.md": "](changelog.md",
    "](../CONTRIBUTING.md": "](contributing.md",
}
_OF_THE_ROOT = {theirs.replace("../", ""): here for theirs, here in _PAGES.items()}
_OF_THE_ROOT |= {"](../../docs/": "](", "](docs/": "]("}
_OF_THE_ROOT |= {'src="docs/': 'src="', 'srcset="docs/': 'srcset="'}


def _page_read(_: Sphinx, __: str, source: list[str]) -> None:
    _link(source, _PAGES)


def _root_read(_: Sphinx, __: Path, ___: str, source: list[str]) -> None:
    _link(source, _OF_THE_ROOT)


def _link(source: list[str], pages: dict[str, str]) -> None:
    for theirs, here in pages.items():
        source[0] = source[0].replace(theirs, here)


def _generate(app: Sphinx) -> None:
    generated.write(Path(app.srcdir) / "reference")


def _copy(app: Sphinx, _: Exception | None) -> None:
    """Copy what `<picture>` shows, which Sphinx does not look at."""
    shutil.copytree(Path(app.srcdir) / "images", Path(app.outdir) / "images", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Connect what Sphinx calls."""
    app.connect("builder-inited", _generate)
    app.connect("source-read", _page_read)
    app.connect("include-read", _root_read)
    app.connect("build-finished", _copy)
