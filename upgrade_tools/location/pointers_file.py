"""Reads the commit pointers that `python -m statestore.spark pointers CHECKPOINT` prints, one a line."""

from __future__ import annotations

import sys
from pathlib import Path

from statestore.errors import StatePointersError
from statestore.recovery.commit.pointer import CommitPointer, parse_pointers


def read_pointers_file(location: str, file: str) -> list[CommitPointer]:
    """Return the pointers in `file`, "-" for stdin. Raises StatePointersError, CommitPointerError."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise StatePointersError(location, problem=f"the commit pointers can't be read ({cause})") from cause
    return parse_pointers(text)
