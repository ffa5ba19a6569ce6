"""No code takes what may be one chunk of several for all of them: an Arrow array can't hold more than 2 GiB."""

import ast
from pathlib import Path

from tests.support.sources import library_sources

MAY_GIVE_SEVERAL = {"chunk", "combine_chunks", "read_next_batch", "to_batches"}
OWNER = Path("statestore/format/binary_columns.py")
"""Its `as_one_array` raises where there would be several."""


def test_only_one_place_makes_one_array_of_several() -> None:
    found = {
        f"{path}:{node.lineno}: {node.attr}"
        for path, tree in library_sources().items()
        if path != OWNER
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in MAY_GIVE_SEVERAL
    }
    assert found == set()
