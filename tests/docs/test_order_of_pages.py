"""docs/README.md has every page once, in the order to read them in; the site takes its navigation from it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain

import statestore
from tests.support.documentation import ROOT
from tests.support.public_names import Sources

DOCS = ROOT / "docs"
ORDER = (DOCS / "README.md").read_text(encoding="utf-8").partition("\n<!--nav-->\n")[2]


def test_every_page_is_in_the_order_once() -> None:
    links = [DOCS / page for page in re.findall(r"^ *- \[[^]]+\]\(([\w./-]+)\)$", ORDER, re.M)]
    patterns = re.findall(r"^ *- ([\w./-]+/\*\.md)$", ORDER, re.M)
    assert [page for page, times in Counter(links).items() if times > 1] == []
    assert set(links).union(*(DOCS.glob(pattern) for pattern in patterns)) == set(DOCS.rglob("*.md"))


def test_every_public_module_is_in_the_reference_once() -> None:
    pages = [page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md"))]
    referenced = list(chain.from_iterable(re.findall(r"^::: ([\w.]+)$", page, re.M) for page in pages))
    assert [name for name, times in Counter(referenced).items() if times > 1] == []
    assert set(Sources.read().public) - set(referenced) == set()


def test_the_changelog_has_the_release_that_this_is() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+)\](?: - \d{4}-\d\d-\d\d)?$", changelog, re.M)
    assert headings[:2] == ["Unreleased", statestore.__version__]
