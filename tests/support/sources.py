"""The sources of the library and its tools, each parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.documentation import ROOT

PACKAGES: Final = ("statestore", "upgrade_tools")


@cache
def sources_below(*folders: str) -> dict[Path, ast.Module]:
    """Return the tree of each source in folders of the repository. Nobody may change them."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def library_sources() -> dict[Path, ast.Module]:
    """Return the trees of the library and its tools, by their paths in the repository."""
    return sources_below(*PACKAGES)
