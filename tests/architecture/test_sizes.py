"""Modules and functions stay short enough to be read at once, and folders small enough to be looked through."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.documentation import ROOT
from tests.support.sources import library_sources, sources_below

MODULE_LINES = 600
FUNCTION_LINES = 60
FOLDER_MODULES = 20


def too_long(path: Path, tree: ast.Module) -> Iterator[str]:
    lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
    if lines > MODULE_LINES:
        yield f"{path} has {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) or ""
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - documented.count("\n")
            if lines > FUNCTION_LINES:
                yield f"{path}: {node.name} has {lines} lines"


def test_modules_and_their_functions_are_short() -> None:
    sources = {**library_sources(), **sources_below("benchmarks", "docs", "tests")}
    assert len(sources) > 1000
    assert [problem for path, tree in sources.items() for problem in too_long(path, tree)] == []


def test_folders_have_few_modules() -> None:
    folders = Counter(path.parent for path in library_sources())
    assert {str(folder): count for folder, count in folders.items() if count > FOLDER_MODULES} == {}
