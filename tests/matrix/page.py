"""The table of docs/compatibility.md, between two marks, of what the matrix has found; it stands nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- made by make test-matrix -->"
END: Final = "<!-- end -->"
SPARK: Final = "Spark"
NOT_RUN: Final = "not run"
_WAY: Final = "- "

Column = Mapping[str, str]
"""What there is of one Spark, by the names of rows; the first is `SPARK`."""


@dataclass(frozen=True)
class Findings:
    """What stands between the marks: a column of each Spark, and the ways that one checkpoint went."""

    columns: Sequence[Column]
    ways: Sequence[str]

    def updated(self, columns: Sequence[Column], ways: Sequence[str], versions: Sequence[str]) -> Findings:
        """Return these with columns of a later run, and its ways if it has any; of these versions of Spark only."""
        known = {column[SPARK]: column for column in (*self.columns, *columns)}
        return Findings([known[version] for version in versions if version in known], ways or self.ways)

    def text(self) -> str:
        """Return them as the page has them."""
        names = list(dict.fromkeys(name for column in reversed(self.columns) for name in column if name != SPARK))
        lines = ["|".join(("", " ", *(f" {SPARK} {column[SPARK]} " for column in self.columns), ""))]
        lines.append("|".join(("", *("---" for _ in range(len(self.columns) + 1)), "")))
        for name in names:
            lines.append("| " + " | ".join((name, *(column.get(name, NOT_RUN) for column in self.columns))) + " |")
        return "\n".join((*lines, "", *(f"{_WAY}{way}" for way in self.ways)))

    @classmethod
    def of_page(cls, page: Path) -> Findings:
        """Return what stands on the page."""
        lines = _between(page)[1].splitlines()
        head, *rows = [_cells(line) for line in lines if line.startswith("|") and not line.startswith("|---")] or [[]]
        versions = [cell.removeprefix(f"{SPARK} ") for cell in head[1:]]
        columns = [
            {SPARK: version, **{row[0]: row[number] for row in rows}} for number, version in enumerate(versions, 1)
        ]
        return cls(columns, [line.removeprefix(_WAY) for line in lines if line.startswith(_WAY)])

    def write(self, page: Path) -> None:
        """Put them into the page, in the place of what stood there."""
        before, _, after = _between(page)
        page.write_text(f"{before}{BEGIN}\n\n{self.text()}\n\n{END}{after}", encoding="utf-8")


def _between(page: Path) -> tuple[str, str, str]:
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    made, _, after = rest.partition(END)
    return before, made, after


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
