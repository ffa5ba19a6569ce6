"""The code in docs/headers.md runs, and what it asserts holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "headers.md"


def test_the_guides_code_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    for block in blocks:
        assert "assert " in block
        exec(compile(block, str(GUIDE), "exec"), names)
    assert names["imported"].value == b"payload"
