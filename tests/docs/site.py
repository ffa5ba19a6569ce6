"""The site that `make docs` has built: it has all public names, and fetches nothing. `make docs` runs this, too.

Links, headings, pages without a place and docstrings are judged by the build: there a warning is an error.
"""

from __future__ import annotations

import re

import pytest

from tests.support.documentation import ROOT, run_page
from tests.support.public_names import Sources

SITE = ROOT / "site"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages as HTML, without their code."""
    html = {page.relative_to(SITE).as_posix(): page.read_text(encoding="utf-8") for page in SITE.rglob("*.html")}
    return {name: re.sub(r"<pre.*?</pre>", "", text, flags=re.S) for name, text in html.items()}


def test_the_reference_has_every_public_name(pages: dict[str, str]) -> None:
    reference = "".join(text for name, text in pages.items() if name.startswith("reference/"))
    headings = set(re.findall(r'<h\d id="([\w.]+)" class="doc ', reference))
    public = Sources.read().public
    assert sum(map(len, public.values())) > 300
    assert [
        f"{module}.{name}" for module in public for name in public[module] if f"{module}.{name}" not in headings
    ] == []


def test_who_reads_it_fetches_nothing_from_elsewhere(pages: dict[str, str]) -> None:
    loads = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]*)"')
    assert {name: loads.findall(text) for name, text in pages.items() if loads.search(text)} == {}
    assert [name for name, text in pages.items() if 'class="mermaid"' in text] == [], "its script is elsewhere"
    styles = [style.read_text(encoding="utf-8") for style in SITE.rglob("*.css")]
    assert [found for style in styles for found in re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", style)] == []


def test_it_can_be_searched_from_files(pages: dict[str, str]) -> None:
    assert (SITE / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert [name for name, text in pages.items() if 'iframe-worker.js"></script>' not in text] == []


def test_a_topology_is_drawn_as_in_a_notebook(pages: dict[str, str]) -> None:
    page = run_page(ROOT / "docs" / "cookbook" / "drawing.md", with_spark=False)
    assert page.topology._repr_html_() in pages["cookbook/drawing.html"]


def test_lists_are_lists(pages: dict[str, str]) -> None:
    """A repository's view takes a list that begins in the middle of a paragraph; the site wants an empty line above."""
    swallowed = re.compile(r"<p>(?:(?!</p>).)*?\n *([-*] (?:(?!\n|</p>).)*)", re.S)
    found = {name: swallowed.findall(text) for name, text in pages.items() if not name.startswith("reference/")}
    assert {name: items for name, items in found.items() if items} == {}
    assert [name for name, text in pages.items() if "```" in text] == [], "code of an item has four spaces before it"
