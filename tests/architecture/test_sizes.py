"""Modules and functions stay short enough to be read at once."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_LINES = 600
FUNCTION_LINES = 60
SOURCES = sorted(
    path
    for folder in ("statestore", "upgrade_tools", "benchmarks", "docs", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


def test_there_are_sources() -> None:
    assert len(SOURCES) > 50


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            documented = ast.get_docstring(node, clean=False) or ""
            assert lines - documented.count("\n") <= FUNCTION_LINES, f"{node.name} has {lines} lines"
