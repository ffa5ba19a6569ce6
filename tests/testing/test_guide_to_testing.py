"""The code in docs/testing.md runs, and what it asserts holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_guides_code_runs(topology_test_driver: Any) -> None:
    assert len(BLOCKS) == 9
    names: dict[str, Any] = {}
    for block in BLOCKS:
        assert "assert " in block
        exec(compile(block, str(GUIDE), "exec"), names)
    names["test_totals_add_up"](topology_test_driver)
    assert names["store"].name == "totals"
