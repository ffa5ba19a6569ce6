"""A one-shard state with a store, and batches of changes on it."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.stores.layers.layer import ChangeLoggingLayer
from tests.support.recovery import on_record

NOTHING_MORE = BatchEnd()
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)


def stored(value: bytes, timestamp_ms: int = 5, header_bytes: bytes = b"") -> bytes:
    encoded = encode_value_timestamp_headers(value, timestamp_ms, header_bytes)
    assert encoded is not None
    return encoded


def wait_for_uploads() -> None:
    """Return when no snapshot is being uploaded in this process."""
    for thread in threading.enumerate():
        if thread.name.startswith("statestore-snapshot"):
            thread.join()


class LoggedBatch:
    """A batch whose stores log what is written to them, as bytes."""

    def __init__(self, batch: ShardBatch, context: TaskRecordContext) -> None:
        self.batch = batch
        self.commit_batch = batch.commit
        self.stores = {
            name: ChangeLoggingLayer(store.bytes, store.spec, store.changelog, context)
            for name, store in batch.stores.items()
        }

    def commit(self, end: BatchEnd = NOTHING_MORE) -> CommitPointer:
        """Commit, and return the pointer alone."""
        return self.commit_batch(end).pointer


@dataclass
class Shard:
    """Drives one shard the way a driver does: open at a pointer, write, commit."""

    home: Path
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    run_name: str = "run1"
    kind: type[DurableLocation] = DurableLocation
    state: ShardedState = field(init=False)

    def __post_init__(self) -> None:
        location = self.kind(self.home / "state")
        local = LocalDirectory(self.home / "local")
        self.state = ShardedState("state-1", location, (TOTALS,), local, recovery=self.recovery, run=self.run_name)

    def start(self) -> CommitPointer:
        on_record(replace(self.state, location=DurableLocation(self.home / "state")))
        return self.state.pointer(0, None)

    def batch(self, pointer: CommitPointer, changes: dict[bytes, bytes | None]) -> CommitPointer:
        def write(shard: LoggedBatch) -> CommitPointer:
            shard.stores["totals"].write(changes.items())
            return shard.commit()

        return self.run(pointer, write)

    def content(self, pointer: CommitPointer) -> dict[bytes, bytes]:
        return self.run(pointer, lambda shard: dict(shard.stores["totals"].range(None, None)))

    def run(self, pointer: CommitPointer, use: Callable) -> object:
        with self.open(pointer) as batch:
            return use(batch)

    @contextmanager
    def open(self, pointer: CommitPointer, context: TaskRecordContext | None = None) -> Iterator[LoggedBatch]:
        with self.state.open(pointer) as batch:
            yield LoggedBatch(batch, context or TaskRecordContext())

    def files(self) -> set[str]:
        root = self.home / "state"
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def delta_file(self, pointer: CommitPointer, index: int = -1) -> Path:
        return self.home / "state" / pointer.deltas[index].name

    @property
    def copy(self) -> Path:
        return self.home / "local" / "state-1" / "shard-0000" / "copy-0"


def keeps_and_restores(location: DurableLocation, home: Path) -> None:
    """Fail unless a location keeps a shard's deltas and snapshots, loses garbage, and restores a lost local copy."""
    options = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000, retained_versions=3)
    shard = Shard(home, recovery=options)
    shard.state = on_record(replace(shard.state, location=location))
    pointer = shard.start()
    for number in range(1, 16):
        pointer = shard.batch(pointer, {b"k": stored(b"%d" % number), b"%d" % number: stored(b"v")})
    wait_for_uploads()
    assert len(pointer.snapshots) >= 2
    assert len(location.directories("shards/0000/snapshots")) <= len(pointer.snapshots) + 1
    assert len(location.names("shards/0000/deltas")) < 15
    shutil.rmtree(home / "local")
    assert shard.content(pointer) == {b"k": stored(b"15"), **{b"%d" % number: stored(b"v") for number in range(1, 16)}}
