"""One store of a task's directory with all its databases, open: what it holds, and what is committed of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from statestore.bytestore.kafka_streams.kind_record import read_record, refuse_other_kind
from statestore.bytestore.kafka_streams.layout import (
    database_directory,
    has_segment_directories,
    offset_key,
    segment_name,
    segment_start_ms,
    segments_directory,
)
from statestore.bytestore.kafka_streams.segment_directories import SegmentDirectories
from statestore.bytestore.kafka_streams.store_database import Committed, StoreDatabase, check_database
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.errors.state import UnknownEntryError
from statestore.format.offset_checkpoint import TopicPartition
from statestore.format.position import Position, merge_positions

_WHOLE_STORE = 0  # stands for a segment's id where the store has one database in all


class TaskStore:
    """The store of `spec` in the task directory `task`, whose changelog is `changelog`.

    `checkpointed` is the changelog's offset in a checkpoint file, which counts more than those in the databases, and
    `older_position` what a position file adds to theirs. Nothing is changed if it can't be opened.
    """

    byte_store: ByteStore  # the entries of all databases

    def __init__(
        self,
        task: Path,
        spec: StoreSpec,
        changelog: TopicPartition,
        checkpointed: int | None,
        older_position: Position,
        *,
        compacting: bool = True,
    ) -> None:
        self._compacting = compacting
        self._task = task
        self._spec = spec
        self._changelog_key = offset_key(changelog)
        self._databases: dict[int, StoreDatabase] = {}
        self._open(self._check())
        self.byte_store = self._whole()
        found = list(self._databases.values())
        self.was_closed_cleanly = all(database.was_closed_cleanly for database in found)
        self.committed = found[-1].committed if found else Committed()
        for database in found:
            self.committed.position = merge_positions(self.committed.position, database.committed.position)
        self.committed.position = merge_positions(self.committed.position, older_position)
        if checkpointed is not None:
            self.committed.changelog_offset = checkpointed
        with ExitStack() as locks:
            locks.callback(self.close, cleanly=False)
            for database in found:
                database.begin(self._to_persist(self.committed))
            locks.pop_all()

    def commit(self, committed: Committed) -> None:
        """Note in every database what the store holds."""
        # In order, the latest segment last: its offset counts, so if the process dies on the way, the old one does.
        for database in self._databases.values():
            database.commit(self._to_persist(committed))
        self.committed = committed

    def flush(self) -> None:
        """Have on the disk what was written."""
        for database in self._databases.values():
            database.flush()

    def close(self, *, cleanly: bool) -> None:
        """Close the store and its databases, each of them even if another one can't be."""
        with ExitStack() as each:
            for database in self._databases.values():
                each.callback(database.close, self._to_persist(self.committed), cleanly=cleanly)
            each.callback(self.byte_store.close)

    def _to_persist(self, committed: Committed) -> Committed:
        """Return what databases are told of it. Kafka Streams never tells that of a versioned store its position."""
        return Committed(committed.changelog_offset) if LAYOUTS[self._spec.kind].keeps_versions else committed

    def _whole(self) -> ByteStore:
        if not has_segment_directories(self._spec.kind):
            return self._databases[_WHOLE_STORE].store
        segments = {segment_id: database.store for segment_id, database in self._databases.items()}
        return SegmentDirectories(self._spec.name, segments, self._create_segment, self._remove_segment)

    def _check(self) -> dict[int, tuple[Path, list[str]]]:
        """Return path and column families of each database, having looked at all of them and changed none."""
        task, store = self._task, self._spec.name
        if has_segment_directories(self._spec.kind):
            paths = self._segment_paths()
            elsewhere = [database_directory(task, store)]
        else:
            paths = {_WHOLE_STORE: database_directory(task, store)}
            elsewhere = list(segments_directory(task, store).glob("*/"))
        for path in elsewhere:
            recorded = read_record(path, store)
            if recorded is not None and recorded.name == store:
                refuse_other_kind(recorded, self._spec, path, store)
        return {key: (path, check_database(path, self._spec, self._name(key))) for key, path in sorted(paths.items())}

    def _segment_paths(self) -> dict[int, Path]:
        directory = segments_directory(self._task, self._spec.name)
        _, interval_ms = self._spec.retention
        found: dict[int, Path] = {}
        entries = list(directory.iterdir()) if directory.is_dir() else [directory] if directory.exists() else []
        for path in sorted(entries):
            start_ms = segment_start_ms(self._spec.name, path.name)
            if start_ms is None or not path.is_dir():
                problem = "is not a segment's directory"
            elif start_ms % interval_ms:
                problem = f"begins at {start_ms} ms, where no segment of {interval_ms} ms begins"
            elif start_ms // interval_ms in found:
                problem = f"is of the same segment as {found[start_ms // interval_ms].name}"
            else:
                found[start_ms // interval_ms] = path
                continue
            raise UnknownEntryError(self._spec.name, path=str(path), found=problem)
        return found

    def _open(self, checked: Mapping[int, tuple[Path, list[str]]]) -> None:
        with ExitStack() as opened:
            for key, (found, present) in checked.items():
                path = self._path(key)
                if found != path:
                    found.rename(path)
                    opened.callback(path.rename, found)
                self._databases[key] = self._database(key, present)
                opened.callback(self._databases[key].abandon)
            opened.pop_all()

    def _name(self, key: int) -> str:
        if not has_segment_directories(self._spec.kind):
            return self._spec.name
        _, interval_ms = self._spec.retention
        return segment_name(self._spec.name, key * interval_ms)

    def _path(self, key: int) -> Path:
        if not has_segment_directories(self._spec.kind):
            return database_directory(self._task, self._spec.name)
        return segments_directory(self._task, self._spec.name) / self._name(key)

    def _database(self, key: int, present: list[str]) -> StoreDatabase:
        path, name = self._path(key), self._name(key)
        return StoreDatabase(path, self._spec, name, self._changelog_key, present, compacting=self._compacting)

    def _create_segment(self, segment_id: int) -> ByteStore:
        database = self._database(segment_id, [])
        try:
            database.begin(self._to_persist(self.committed))
        except BaseException:
            database.abandon()
            raise
        self._databases = dict(sorted([*self._databases.items(), (segment_id, database)]))
        return database.store

    def _remove_segment(self, segment_id: int) -> None:
        self._databases.pop(segment_id).remove()
