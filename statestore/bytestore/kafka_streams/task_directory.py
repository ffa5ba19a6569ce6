"""A task's state directory as Kafka Streams 4.3 has it: opened, changed and left so that Kafka Streams can go on.

What is where is the business of `layout`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from statestore.bytestore.kafka_streams.layout import CHECKPOINT_FILE, changelog_partition, position_file
from statestore.bytestore.kafka_streams.store_database import Committed
from statestore.bytestore.kafka_streams.task_store import TaskStore
from statestore.bytestore.kinds.store_spec import StoreSpec, check_store_name
from statestore.bytestore.protocol import ByteStore
from statestore.errors import FormatError, StoreError
from statestore.format.offset_checkpoint import TopicPartition, decode_offset_checkpoint, encode_offset_checkpoint
from statestore.format.position import OFFSET_UNKNOWN, Position, merge_positions

_FILE_LIMIT_BYTES = 16 * 1024 * 1024


class TaskDirectory:
    """The directory of one task: `STATE_DIR/APPLICATION_ID/TASK_ID` of Kafka Streams. What is missing is made.

    `partition` is that of the changelog topics: the second number of the task's id. Use it as a context manager, or
    call `close`. If the block is left by an exception, the stores do not count as closed cleanly: then Kafka Streams
    restores them from their changelogs, if it processes exactly once. One that is not `compacting` leaves the tables as
    they are: for reading stores once.
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
            f"{path} is damaged ({cause}). Bring it back, or delete it: then the offsets in it are unknown, and "
            "stores without a known offset are restored from the beginning of their changelogs",
        ) from cause
