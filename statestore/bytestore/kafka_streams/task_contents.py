"""What there is in a task's directory of Kafka Streams, before anything is known of its stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kafka_streams.directory_view import families_in
from statestore.bytestore.kafka_streams.layout import (
    CHECKPOINT_FILE,
    OFFSETS_FAMILY,
    POSITION_KEY,
    STATUS_CLOSED,
    STATUS_KEY,
    changelog_of,
    database_directory,
    segment_start_ms,
)
from statestore.bytestore.kafka_streams.store_database import read_record
from statestore.bytestore.kafka_streams.task_directory import read_offsets
from statestore.bytestore.kinds.store_spec import StoreSpec, is_store_name
from statestore.bytestore.protocol import ByteStore
from statestore.format.offset_checkpoint import TopicPartition
from statestore.format.position import OFFSET_UNKNOWN, Position, decode_long, decode_position


@dataclass
class TaskStoreFiles:
    """The databases of one store in one task's directory."""

    name: str
    segmented: bool  # whether it has a database for each segment
    databases: list[Path] = field(default_factory=list)

    @property
    def families(self) -> list[tuple[str, ...]]:
        """The column families of each database. Raises OSError, LocalStateCorruptedError."""
        return [families_in(path) for path in self.databases]

    @property
    def recorded(self) -> StoreSpec | None:
        """What is recorded of the store in one of its databases."""
        return next((spec for path in self.databases if (spec := read_record(path, self.name)) is not None), None)


def task_stores(task: Path) -> list[TaskStoreFiles]:
    """Return the stores in a task's directory, in the order of names; what is no store's is left out."""
    in_one = [path for path in _directories(database_directory(task, "")) if is_store_name(path.name)]
    found = [TaskStoreFiles(path.name, False, [path]) for path in in_one if any(path.iterdir())]
    for directory in _directories(task):
        if not is_store_name(directory.name):
            continue
        segments = [path for path in _directories(directory) if segment_start_ms(directory.name, path.name) is not None]
        if segments:
            found.append(TaskStoreFiles(directory.name, True, segments))
    return sorted(found, key=lambda files: files.name)


def changelog_topics(task: Path) -> Iterator[str]:
    """Yield the changelog topics that a file and then databases, opened in turn, have offsets of: give it a view."""
    yield from (changelog.topic for changelog in read_offsets(task / CHECKPOINT_FILE, CHECKPOINT_FILE))
    for files in task_stores(task):
        for path, families in zip(files.databases, files.families, strict=True):
            if OFFSETS_FAMILY not in families:
                continue
            database = RocksDBDatabase(str(path), [], compacting=False)
            try:
                keys = [key for key, _ in database.family(OFFSETS_FAMILY).range(None, None)]
            finally:
                database.close()
            yield from (changelog.topic for key in keys if (changelog := changelog_of(key)) is not None)


@dataclass(frozen=True)
class RecordedOffsets:
    """What the family `offsets` of a database says."""

    changelogs: Mapping[TopicPartition, int | None]
    """The offset of the last record of each changelog that is in the database, None if it is unknown."""
    position: Position
    is_closed: bool | None  # whether it was closed cleanly; None if that is not recorded


def recorded_offsets(family: ByteStore) -> RecordedOffsets:
    """Return what the family `offsets` of a database says. Raises FormatError."""
    changelogs: dict[TopicPartition, int | None] = {}
    position: Position = {}
    is_closed = None
    for key, value in family.range(None, None):
        if key == STATUS_KEY:
            is_closed = decode_long("status", value) == STATUS_CLOSED
        elif key == POSITION_KEY:
            position = decode_position(value)
        elif (changelog := changelog_of(key)) is not None:
            offset = decode_long("changelog offset", value)
            changelogs[changelog] = None if offset == OFFSET_UNKNOWN else offset
    return RecordedOffsets(changelogs, position, is_closed)


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
