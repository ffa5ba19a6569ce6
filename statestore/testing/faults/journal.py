"""The journal of one run: what all its processes count and note, in a directory that outlives each of them."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, NamedTuple


class Firing(NamedTuple):
    """A fault that struck: which one of the plan, and at what, in words or as a file's name."""

    fault: int
    at: str


class FaultJournal:
    """Counters, flags and lists in files. Safe between processes that may be killed at any moment. Picklable."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def count(self, name: str) -> int:
        """Add one to a counter and return it: 1 at the first call."""
        with open(self.directory / f"{name}.count", "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # One byte for each count, so that a kill between two steps leaves a right counter.
            file.write(b".")
            file.flush()
            return os.fstat(file.fileno()).st_size

    def note(self, name: str, entry: Any) -> None:
        """Append an entry, which JSON can hold, to a list."""
        with open(self.directory / f"{name}.jsonl", "ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")  # one write, so that entries never mix

    def notes(self, name: str) -> list[Any]:
        """Return a list's entries, oldest first."""
        try:
            lines = (self.directory / f"{name}.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def forget(self, name: str) -> None:
        """Empty a list."""
        (self.directory / f"{name}.jsonl").unlink(missing_ok=True)

    def fired(self) -> list[Firing]:
        """Return the faults that struck, in order; one that struck several times is there as often."""
        return [Firing(*entry) for entry in self.notes("fired")]

    def set(self, flag: str) -> None:
        """Set a flag."""
        (self.directory / flag).touch()

    def clear(self, flag: str) -> None:
        """Take a flag back."""
        (self.directory / flag).unlink(missing_ok=True)

    def is_set(self, flag: str) -> bool:
        """Return whether a flag is set."""
        return os.path.exists(self.directory / flag)
