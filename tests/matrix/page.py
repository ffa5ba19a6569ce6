"""The table of docs/compatibility.md, between two marks, of what the matrix has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- made by make test-matrix -->"
END: Final = "<!-- end -->"


def table(columns: Sequence[Mapping[str, str]]) -> str:
    """Return a table with a column for each mapping, and a row for each name in the first, in its order."""
    first, *names = columns[0]
    head = "|".join(("", "", *(f" {first} {column[first]} " for column in columns), ""))
    lines = [head, "|".join(("", *("---" for _ in range(len(columns) + 1)), ""))]
    lines += ["| " + " | ".join((name, *(column[name] for column in columns))) + " |" for name in names]
    return "\n".join(lines)


def write(page: Path, made: str) -> None:
    """Put what was made into the page, in the place of what was there before."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}", encoding="utf-8")
