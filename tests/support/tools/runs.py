"""Runs the offline tools as their command line does, on directories that must stay as they are."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support.golden.kafka_streams import Fixture
from upgrade_tools.cli.app import main

KEYED_BY_DATA: Final = ("changelogs", "position", "shards", "stateId")
"""Fields whose objects have topics, partitions or stages for names."""


def document_in(printed: str) -> Any:
    """The one JSON document that a command printed; its fields are named in one style."""
    document = json.loads(printed)
    assert misnamed(document) == []
    return document


def misnamed(document: Any) -> list[str]:
    """The fields of a document whose names are not camelCase."""
    if isinstance(document, list):
        return [name for each in document for name in misnamed(each)]
    if not isinstance(document, dict):
        return []
    wrong = [name for name in document if not re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", name)]
    return wrong + [n for name, field in document.items() if name not in KEYED_BY_DATA for n in misnamed(field)]


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed, which must be one JSON document."""
        return document_in(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Tools:
    """The command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ended:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ended(int(code), *self._capsys.readouterr())


def kind_options(fixture: Fixture, kind: str | None = None) -> list[str]:
    """The options that say of a golden directory what its files can't tell."""
    kind = kind or fixture.fixture["kind"]
    size = ["--window-size-ms", "10000"] if "window" in kind else []
    return ["--kind", kind, *size]


def everything_below(directory: Path) -> dict[str, tuple[object, ...]]:
    """All files and directories with content, mode and time of the last change: to see that nothing touched them."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([directory, *directory.rglob("*")]):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_mtime_ns, content)
    return found
