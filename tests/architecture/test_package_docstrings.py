"""Each package says what its rooms are, who may import what, and where a newcomer starts."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.support.public_names import Sources

SOURCES: Final = Sources.read()
PACKAGES: Final = [name for name, module in SOURCES.modules.items() if module.path.name == "__init__.py"]
MOST_LINES: Final = 24


def docstring(package: str) -> str:
    return ast.get_docstring(SOURCES.modules[package].tree) or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_rooms(package: str) -> None:
    rooms = {name.rpartition(".")[2] for name in SOURCES.modules if name.rpartition(".")[0] == package} - {"__main__"}
    assert rooms - set(re.findall(r"\w+", docstring(package))) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_no_room_that_is_gone(package: str) -> None:
    rooms = {name.rpartition(".")[2] for name in SOURCES.modules if name.rpartition(".")[0] == package}
    lists = re.findall(r"^([\w/]+(?:, [\w/]+)*)(?:  +|$)", docstring(package), re.M)
    listed = {name for names in lists for name in re.findall(r"\w+", names)}
    # Those of one word may be a heading.
    assert {name for name in listed if "_" in name} - rooms == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_who_imports_what_and_where_to_start(package: str) -> None:
    said = docstring(package)
    assert re.search(r"\b[Ii]mports?\b", said), "who may import what?"
    assert re.search(r"[Ss]tart\s+at\s+`", said), "where does a newcomer start?"
    assert package.endswith("errors") or len(said.splitlines()) <= MOST_LINES
