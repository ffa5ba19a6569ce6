"""What there is in a task's directory of Kafka Streams, before anything is known of its stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from statestore.bytestore.kafka_streams_layout import (
    CHECKPOINT_FILE,
    OFFSETS_FAMILY,
    changelog_of,
    database_directory,
    segment_start_ms,
)
from statestore.bytestore.kind_record import read_record
from statestore.bytestore.rocksdb import RocksDBDatabase, list_families
from statestore.bytestore.store_spec import StoreSpec
from statestore.bytestore.task_directory import read_offsets


@dataclass
class TaskStoreFiles:
    """The databases of one store in one task's directory."""

    name: str
    segmented: bool
    """Whether it has a database for each segment."""
    databases: list[Path] = field(default_factory=list)

    @property
    def families(self) -> list[tuple[str, ...]]:
        """The column families of each database."""
        return [list_families(str(path)) for path in self.databases]

    @property
    def recorded(self) -> StoreSpec | None:
        """What is recorded of the store in one of its databases."""
        return next((spec for path in self.databases if (spec := read_record(path, self.name)) is not None), None)


def task_stores(task: Path) -> list[TaskStoreFiles]:
    """Return the stores in a task's directory, in the order of names; what is no database is left out."""
    found = [TaskStoreFiles(path.name, False, [path]) for path in _directories(database_directory(task, ""))]
    for directory in _directories(task):
        segments = [path for path in _directories(directory) if segment_start_ms(directory.name, path.name) is not None]
        if segments:
            found.append(TaskStoreFiles(directory.name, True, segments))
    return sorted(found, key=lambda files: files.name)


def changelog_topics(task: Path) -> set[str]:
    """Return the changelog topics whose offsets a task's directory has. Opens its databases: give it a view."""
    found = {changelog.topic for changelog in read_offsets(task / CHECKPOINT_FILE, CHECKPOINT_FILE)}
    for files in task_stores(task):
        for path, families in zip(files.databases, files.families, strict=True):
            if OFFSETS_FAMILY not in families:
                continue
            database = RocksDBDatabase(str(path), [], compacting=False)
            try:
                keys = [key for key, _ in database.family(OFFSETS_FAMILY).range(None, None)]
            finally:
                database.close()
            found.update(changelog.topic for key in keys if (changelog := changelog_of(key)) is not None)
    return found


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
