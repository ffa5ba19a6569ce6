"""`statestore.migration.json` in a task's directory that is being made: how far it is.

    {"format": 1, "request": str, "source": str, "databases": {store: {place: entries, ...}, ...},
     "verified": bool}

`request` identifies the migration, and `source` the source's files when it began: if they have changed, what was made
does not count. `databases` are those that are written and verified, with the entries of each. The file moves along when
the directory is put in its place, and is removed last: so of two directories the new one is the one that has it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from statestore.errors.new_state import DirectoryDamagedError
from statestore.format.json_fields import MALFORMED, whole_number

JOURNAL_FILE: Final = "statestore.migration.json"
_UNFINISHED: Final = f"{JOURNAL_FILE}.tmp"
_FORMAT: Final = 1
_LIMIT_BYTES: Final = 64 << 20


@dataclass
class TaskJournal:
    """How far one task's directory is."""

    request: str
    source: str
    databases: dict[str, dict[str, int]] = field(default_factory=dict)
    verified: bool = False
    """Whether all of it is there, verified and on the disk."""

    @property
    def entries(self) -> dict[str, int]:
        """How many entries of each store are written and verified."""
        return {store: sum(places.values()) for store, places in self.databases.items()}

    def write(self, directory: Path) -> None:
        """Record it in `directory`; survives the death of the process and of the machine."""
        path = directory / JOURNAL_FILE
        written = directory / _UNFINISHED
        with open(written, "wb") as file:
            file.write(json.dumps({"format": _FORMAT, **asdict(self)}).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, path)


def read_journal(directory: Path) -> TaskJournal | None:
    """Return the journal in a directory, None if there is none. Raises DirectoryDamagedError if it is not one."""
    path = directory / JOURNAL_FILE
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fields = json.loads(data)
        if fields["format"] != _FORMAT:
            raise ValueError(f"format {fields['format']!r}; this release knows {_FORMAT}")
        databases = {
            str(store): {str(place): whole_number(entries, 0) for place, entries in places.items()}
            for store, places in fields["databases"].items()
        }
        return TaskJournal(str(fields["request"]), str(fields["source"]), databases, fields["verified"] is True)
    except MALFORMED as cause:
        raise DirectoryDamagedError(
            str(directory), cause=f"{JOURNAL_FILE} of an unfinished migration can't be read: {cause!r}"
        ) from cause


def is_vacant(directory: Path) -> bool:
    """Return whether a directory without a journal has nothing but an unfinished one."""
    return not directory.exists() or all(entry.name == _UNFINISHED for entry in directory.iterdir())


def forget_journal(directory: Path) -> None:
    """Remove the journal, as the directory is in its place."""
    for name in (_UNFINISHED, JOURNAL_FILE):
        (directory / name).unlink(missing_ok=True)
