"""The table of docs/compatibility.md, between two marks, of what the matrix has found; it stands nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BEGIN, END = "<!-- made by make test-matrix -->", "<!-- end -->"
SPARK: Final = "Spark"
EVERY: Final = "all"
"""The column of what is the same with each Spark; the others are empty then."""
NOT_RUN: Final = "not run"
FAILED: Final = "FAILED"
_SENTENCE: Final = "- "

Column = Mapping[str, str]
"""What there is of one Spark, by the names of rows; the first is `SPARK`."""


@dataclass(frozen=True)
class Findings:
    """What stands between the marks: a column of each Spark, and sentences by what they are about."""

    columns: Sequence[Column]
    sentences: Mapping[str, str]

    def updated(self, later: Findings, versions: Sequence[str]) -> Findings:
        """Return these with what a later run has found, cell by cell; columns of these versions of Spark only."""
        known: dict[str, Column] = {}
        for column in (*self.columns, *later.columns):
            known[column[SPARK]] = {**known.get(column[SPARK], {}), **column}
        return Findings([known[each] for each in versions if each in known], {**self.sentences, **later.sentences})

    def of_rows(self, names: Collection[str]) -> Findings:
        """Return these with rows of these names only, in that order, `NOT_RUN` where there is nothing."""
        columns = [{name: column.get(name, NOT_RUN) for name in (SPARK, *names)} for column in self.columns]
        return Findings(columns, self.sentences)

    def has(self, version: str, name: str) -> bool:
        """Return whether it is known that that version is right in that row."""
        said = next((column.get(name, NOT_RUN) for column in self.columns if column[SPARK] == version), NOT_RUN)
        return said != NOT_RUN and FAILED not in said

    def text(self) -> str:
        """Return them as the page has them."""
        names = list(dict.fromkeys(name for column in reversed(self.columns) for name in column if name != SPARK))
        lines = ["|".join(("", " ", f" {EVERY} ", *(f" {SPARK} {column[SPARK]} " for column in self.columns), ""))]
        lines.append("|".join(("", *("---" for _ in range(len(self.columns) + 2)), "")))
        for name in names:
            cells = [column.get(name, NOT_RUN) for column in self.columns]
            said = cells[:1] if len(set(cells)) == 1 else ["", *cells]
            lines.append("| " + " | ".join((name, *said)) + " |")
        return "\n".join((*lines, "", *(f"{_SENTENCE}{about}: {said}" for about, said in self.sentences.items())))

    @classmethod
    def of_page(cls, page: Path) -> Findings:
        """Return what stands on the page."""
        lines = _between(page)[1].splitlines()
        head, *rows = [_cells(line) for line in lines if line.startswith("|") and not line.startswith("|---")] or [[]]
        versions = [cell.removeprefix(f"{SPARK} ") for cell in head[2:]]
        columns = [
            {SPARK: version, **{row[0]: row[1] or row[number] for row in rows}}
            for number, version in enumerate(versions, 2)
        ]
        sentences = [line.removeprefix(_SENTENCE).partition(": ") for line in lines if line.startswith(_SENTENCE)]
        return cls(columns, {about: said for about, _, said in sentences})

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
