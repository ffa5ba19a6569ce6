"""No code takes what may be one chunk of several for all of them: an Arrow array can't hold more than 2 GiB."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("statestore", "upgrade_tools") for path in (ROOT / folder).rglob("*.py")]
MAY_GIVE_SEVERAL = {"chunk", "combine_chunks", "read_next_batch", "to_batches"}
OWNER = ROOT / "statestore" / "format" / "binary_columns.py"
"""Its `as_one_array` raises where there would be several."""


def test_only_one_place_makes_one_array_of_several() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for path in SOURCES
        if path != OWNER
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in MAY_GIVE_SEVERAL
    }
    assert found == set()
