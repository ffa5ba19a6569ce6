"""One fault: where it can strike, and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

UNTIL_IT_FAILS: Final = 8
"""This many strikes fail every attempt of two Spark tasks, and so the query."""


class FileKind(str, Enum):
    """What a file of the durable location is, by its name."""

    ANY = "any file"
    METADATA = "metadata"
    CLAIM = "claim"
    FENCE = "fence"
    DELTA = "delta"
    MANIFEST = "manifest"
    SNAPSHOT = "snapshot file"
    OTHER = "other file"

    @classmethod
    def of(cls, name: str) -> FileKind:
        """Return what the file `name` is, or is going to be if it is a writer's partial file."""
        if name.endswith(".partial"):
            name = name.removesuffix(".partial").rpartition(".")[0]
        directory, _, last = name.rpartition("/")
        if last == "statestore.json":
            return cls.METADATA
        if last.endswith(".fence"):
            return cls.FENCE
        if last.endswith(".arrow"):
            return cls.DELTA
        if last == "manifest.json":
            return cls.MANIFEST
        if "/snapshots/" in f"/{directory}/":
            return cls.SNAPSHOT
        return cls.CLAIM if directory.endswith("owners") else cls.OTHER


class Point(str, Enum):
    """Where a fault can strike."""

    READ = "location.read"
    FETCH = "location.fetch"
    WRITE = "location.write"
    LIST = "location.list"
    DELETE = "location.delete"
    CREATE_FILE = "disk.create"
    APPEND = "disk.append"
    SYNC_FILE = "disk.sync_file"
    REPLACE = "disk.replace"
    SYNC_DIRECTORY = "disk.sync_directory"
    REMOVE = "disk.remove"
    OPEN_DATABASE = "local.open"
    WRITE_DATABASE = "local.write"
    READ_DATABASE = "local.read"
    CLOSE_DATABASE = "local.close"
    RECORD = "record"
    SINK = "sink"
    BETWEEN_RUNS = "between runs"


class Effect(str, Enum):
    """What a fault does."""

    ERROR_BEFORE = "error before"
    """The operation fails, and nothing was done."""
    ERROR_AFTER = "error after"
    """The operation fails, although it was done: the answer was lost."""
    KILL_BEFORE = "kill before"
    """The process is killed with SIGKILL."""
    KILL_AFTER = "kill after"
    DELAY = "delay"
    """The operation takes `amount` milliseconds longer."""
    NO_SPACE = "no space"
    """The disk is full: what was written is cut half way."""
    CORRUPT = "corrupt"
    """This one read has a bit flipped; a local database reports damage."""
    ROT = "rot"
    """What was written is damaged at rest: a bit flipped, the end cut off, or all of it gone. `amount` says which."""
    POWER_LOSS = "power loss"
    """Everything stops, and some of what was not synced is lost. `amount` seeds which."""
    LOSE_LOCAL = "lose local state"
    DAMAGE_LOCAL = "damage local state"
    """A file of a local copy is damaged, as with ROT."""
    OLDER_CHECKPOINT = "older checkpoint"
    """The query goes on from its checkpoint as it was before the last run."""


@dataclass(frozen=True)
class Fault:
    """One fault. It strikes `times` times in a row, from the given occurrence on.

    Between runs, `occurrence` says after which run, and `kind` which files rot. Elsewhere `kind` narrows operations on
    files to those of one kind.
    """

    point: Point
    effect: Effect
    occurrence: int = 1
    times: int = 1
    kind: FileKind = FileKind.ANY
    amount: int = 0

    def strikes_at(self, point: Point, kind: FileKind) -> bool:
        """Return whether an operation of this kind is counted for the fault."""
        return point is self.point and self.kind in (FileKind.ANY, kind)

    def describe(self) -> str:
        """Return the fault in words."""
        where = self.point.value + ("" if self.kind is FileKind.ANY else f" of {self.kind.value}")
        amount = f" ({self.amount})" if self.amount else ""
        times = f", {self.times} times" if self.times > 1 else ""
        return f"{self.effect.value}{amount} at {where} #{self.occurrence}{times}"
