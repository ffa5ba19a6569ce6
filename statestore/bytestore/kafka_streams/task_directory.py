"""A task's state directory as Kafka Streams 4.3 has it: opened, changed and left so that Kafka Streams can go on.

`layout` says what is where. The last part finds stores in a directory of which nothing is known yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kafka_streams.directory_view import families_in
from statestore.bytestore.kafka_streams.layout import (
    CHECKPOINT_FILE,
    OFFSETS_FAMILY,
    changelog_of,
    changelog_partition,
    database_directory,
    has_segment_directories,
    position_file,
    refuse_time_order,
    segment_name,
    segment_spans,
    segment_start_ms,
    segments_directory,
)
from statestore.bytestore.kafka_streams.segment_directories import SegmentDirectories
from statestore.bytestore.kafka_streams.store_database import (
    Committed,
    StoreDatabase,
    check_database,
    read_record,
    refuse_other_kind,
)
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec, check_store_name, is_store_name
from statestore.bytestore.protocol import ByteStore
from statestore.errors import FormatError, StoreError
from statestore.errors.state import UnknownEntryError
from statestore.format.offset_checkpoint import TopicPartition, decode_offset_checkpoint, encode_offset_checkpoint
from statestore.format.position import OFFSET_UNKNOWN, Position, merge_positions

_WHOLE_STORE = 0  # instead of a segment's id, for stores with a single database


class TaskStore:
    """The store of `spec` in the task directory `task`, whose changelog is `changelog`.

    `checkpointed` is the changelog's offset in a checkpoint file, which takes precedence over those in the databases;
    `older_position` of a position file is added to theirs. Nothing is changed if it can't be opened.
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
        self._changelog = changelog
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
        # The latest segment comes last: its offset counts, so if the process dies on the way, the old one does.
        for database in self._databases.values():
            database.commit(self._to_persist(committed))
        self.committed = committed

    def flush(self) -> None:
        """Force to disk what was written."""
        for database in self._databases.values():
            database.flush()

    def close(self, *, cleanly: bool) -> None:
        """Close the store and its databases, each even if another one fails."""
        with ExitStack() as each:
            for database in self._databases.values():
                each.callback(database.close, self._to_persist(self.committed), cleanly=cleanly)
            each.callback(self.byte_store.close)

    def _to_persist(self, committed: Committed) -> Committed:
        """Return what databases note of it. Kafka Streams never notes the position of a versioned store."""
        return Committed(committed.changelog_offset) if LAYOUTS[self._spec.kind].keeps_versions else committed

    def _whole(self) -> ByteStore:
        if not has_segment_directories(self._spec.kind):
            return self._databases[_WHOLE_STORE].store
        segments = {segment_id: database.store for segment_id, database in self._databases.items()}
        return SegmentDirectories(self._spec.name, segments, self._create_segment, self._remove_segment)

    def _check(self) -> dict[int, tuple[Path, list[str]]]:
        """Check all databases without changing any; return the path and column families of each."""
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
            self._refuse_time_order()
            opened.pop_all()

    def _refuse_time_order(self) -> None:
        if not has_segment_directories(self._spec.kind):
            return
        _, interval_ms = self._spec.retention
        spans = segment_spans([segment_id * interval_ms for segment_id in self._databases])
        for span, (segment_id, database) in zip(spans, self._databases.items(), strict=True):
            refuse_time_order(self._spec, span, database.store.range(None, None), str(self._path(segment_id)))

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
        return StoreDatabase(path, self._spec, name, self._changelog, present, compacting=self._compacting)

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


_FILE_LIMIT_BYTES = 16 * 1024 * 1024


class TaskDirectory:
    """The directory of one task: `STATE_DIR/APPLICATION_ID/TASK_ID` of Kafka Streams. What is missing is made.

    `partition` is that of the changelog topics: the second number of the task's id. Use it as a context manager, or
    call `close`. If the block is left by an exception, the stores do not count as closed cleanly: Kafka Streams then
    restores them from their changelogs, if it processes exactly once. If it is not `compacting`, tables stay as they
    are: for reading stores once.
    """

    def __init__(
        self, path: str | os.PathLike[str], application_id: str, partition: int = 0, *, compacting: bool = True
    ) -> None:
        self._path = Path(path)
        self._compacting = compacting
        self._application_id = check_store_name(application_id)
        self._partition = partition
        self._stores: dict[str, TaskStore] = {}

    def open_store(self, spec: StoreSpec) -> ByteStore:
        """Open the store of `spec`, made if it is missing, until this directory is closed.

        Keys are those on the disk, behind their segment's id in window and session stores (see `segments`). What an
        older Kafka Streams left is upgraded: names and offsets at once, entries as they are touched.

        Raises, before any entry is touched, StoreFormatError for what is recorded or found as another kind of store or
        in a newer format, UnknownColumnFamilyError and UnknownEntryError for what no store of `spec` can have,
        LocalStateLockedError, LocalStateCorruptedError, and ValueError if the store is open here already.
        """
        if spec.name in self._stores:
            raise ValueError(f"store {spec.name!r} of {self._path} is open already")
        changelog = changelog_partition(self._application_id, spec.name, self._partition)
        checkpointed = read_offsets(self._checkpoint, spec.name).get(changelog)
        position: Position = {}
        for (topic, partition), offset in read_offsets(position_file(self._path, spec.name), spec.name).items():
            position.setdefault(topic, {})[partition] = offset
        spec = replace(spec, indexed_headers=())  # Kafka Streams has no indexes
        opened = TaskStore(self._path, spec, changelog, checkpointed, position, compacting=self._compacting)
        self._stores[spec.name] = opened
        if checkpointed is not None:
            opened.flush()
            self._remove_from_checkpoint(changelog, spec.name)
        return opened.byte_store

    def changelog_offset(self, store: str) -> int | None:
        """Return the offset of the last changelog record that an open store holds, None if it is unknown."""
        offset = self._task_store(store).committed.changelog_offset
        return None if offset == OFFSET_UNKNOWN else offset

    def position(self, store: str) -> Position:
        """Return which input offsets an open store has taken in. A versioned store forgets them when it is closed."""
        return merge_positions({}, self._task_store(store).committed.position)

    def was_closed_cleanly(self, store: str) -> bool:
        """Return whether an open store was closed before or is new; otherwise it may hold more than was committed."""
        return self._task_store(store).was_closed_cleanly

    def commit(self, store: str, changelog_offset: int | None, position: Mapping[str, Mapping[int, int]]) -> None:
        """Note what an open store holds: offset of the last changelog record (None = unknown), and input position.

        Without a commit it keeps what was committed before. Survives the death of the process, as do all writes that
        came before it. Raises ValueError for a negative offset of the changelog.
        """
        if changelog_offset is not None and not 0 <= changelog_offset < 2**63:
            raise ValueError(f"not an offset: {changelog_offset!r}; None stands for an unknown one")
        offset = OFFSET_UNKNOWN if changelog_offset is None else changelog_offset
        self._task_store(store).commit(Committed(offset, merge_positions({}, position)))

    def close(self) -> None:
        """Close all stores, and release their locks. Closing twice is harmless."""
        self._close(cleanly=True)

    def __enter__(self) -> TaskDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(cleanly=kind is None)

    def _close(self, *, cleanly: bool) -> None:
        stores, self._stores = self._stores, {}
        with ExitStack() as each:
            for store in stores.values():
                each.callback(store.close, cleanly=cleanly)

    def _task_store(self, store: str) -> TaskStore:
        if store not in self._stores:
            raise ValueError(f"store {store!r} of {self._path} is not open; open are {sorted(self._stores)}")
        return self._stores[store]

    @property
    def _checkpoint(self) -> Path:
        return self._path / CHECKPOINT_FILE

    def _remove_from_checkpoint(self, changelog: TopicPartition, store: str) -> None:
        """Take the offset of a changelog out of the file: from now on the store's own is valid."""
        left = read_offsets(self._checkpoint, store)
        del left[changelog]
        if not left:
            self._checkpoint.unlink()
            return
        written = self._path / f"{CHECKPOINT_FILE}.tmp"
        written.write_bytes(encode_offset_checkpoint(left))
        os.replace(written, self._checkpoint)


def read_offsets(path: Path, store: str) -> dict[TopicPartition, int]:
    """Return the offsets in a file, none without one, for `store`. Raises StoreError if the file is damaged."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return {}
    try:
        if len(data) > _FILE_LIMIT_BYTES:
            raise FormatError("offset checkpoint", f"longer than {_FILE_LIMIT_BYTES} bytes")
        return decode_offset_checkpoint(data)
    except FormatError as cause:
        raise StoreError(
            store,
            f"{path} is damaged ({cause}). Restore it from a backup, or delete it: then the offsets in it are unknown, "
            "and stores without a known offset are restored from the beginning of their changelogs",
        ) from cause


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
    """Return the stores in a task's directory, sorted by name; everything else there is ignored."""
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
    """Yield the changelog topics with offsets in the checkpoint file and in databases, which it opens: pass a view."""
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


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
