"""The documentation site: README.md, the pages of nav.toml in their order, and a search; `make site` builds it.

What a reader's browser loads is all in the site's own folder: no font, script or picture comes from elsewhere.
"""

import re
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from graph import Graph  # noqa: E402  # of this folder

SECTIONS = tomllib.loads((HERE / "nav.toml").read_text())["section"]
FIRST = "README"
# What makes a browser ask another host: not a link, which only a reader follows.
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//[^"]+|<link\b(?![^>]*\brel="canonical)"""
    r"""[^>]*\bhref="(?:https?:)?//[^"]+|(?:url\(|@import )["']?(?:https?:)?//[^)"']+"""
)

project = "TPU platforms as one Pulumi graph"
html_title = "TPU platforms"
extensions = ["myst_parser"]
root_doc = FIRST
include_patterns = [f"{FIRST}.md", *(page for section in SECTIONS for page in section["pages"])]
exclude_patterns = [".*", "**/.venv", "**/node_modules", "**/__pycache__", "website", "tests"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# Queries have placeholders, which are no PromQL; console blocks have output.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_additional_pages = {"index": "to_first.html"}
templates_path = ["templates"]
pygments_style, pygments_dark_style = "default", "github-dark"
highlight_language = "text"


def in_order(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the pages to the first one, as the navigation at its side."""
    if page != FIRST:
        return
    for section in SECTIONS:
        pages = "\n".join(each.removesuffix(".md") for each in section["pages"])
        source[0] += f'\n\n```{{toctree}}\n:hidden:\n:caption: "{section["title"]}"\n\n{pages}\n```\n'


def nothing_from_elsewhere(app: Sphinx, failure: Exception | None) -> None:
    """Refuse a site whose pages load anything from another host."""
    for file in [] if failure else [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]:
        if found := ELSEWHERE.search(file.read_text()):
            raise ExtensionError(f"{file.name} would load {found[0]!r} from another host")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", nothing_from_elsewhere)
    app.connect("source-read", in_order)
    app.add_directive("mermaid", Graph)
