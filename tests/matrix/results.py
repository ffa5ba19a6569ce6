"""What a run of pytest came to, by part, from its report in JUnit's format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.matrix.page import FAILED, NOT_RUN
from tests.matrix.parts import Part

_PASSED: Final = "passed"
_SKIPPED: Final = "skipped"


def results_of(report: Path, parts: Sequence[Part]) -> dict[str, Counter[str]]:
    """Return how many tests of each part passed, were skipped and failed; a test of no part is the last one's."""
    found = {part.about: Counter[str]() for part in parts}
    for case in ElementTree.parse(report).iter("testcase"):
        module, test = case.get("classname", ""), case.get("name", "").partition("[")[0]
        part = next((part for part in parts if part.has(module, test)), parts[-1])
        kinds = {child.tag for child in case}
        outcome = FAILED if kinds & {"failure", "error"} else _SKIPPED if "skipped" in kinds else _PASSED
        found[part.about][outcome] += 1
    return found


def in_words(counted: Mapping[str, int]) -> str:
    """Return what a cell of the table says of some tests."""
    said = [f"{counted[outcome]} {outcome}" for outcome in (FAILED, _PASSED) if counted.get(outcome)]
    if counted.get(_SKIPPED):
        said.append(f"{counted[_SKIPPED]} not there")
    return ", ".join(said) or NOT_RUN
