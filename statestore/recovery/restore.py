"""Brings committed deltas into the stores of a copy, on whatever engine they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.segments import Segments
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.bytestore.versioned_rows import VersionedRows
from statestore.bytestore.write_set import WriteSet
from statestore.errors import DurableFileCorruptedError, DurableFileMissingError, FormatError
from statestore.format.stored_value import restore_stored
from statestore.recovery.delta import Delta, DeltaInfo, LoggedStore, changelog_records, decode_delta
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer, DurableFile, check_content, digest
from statestore.recovery.restore_progress import RestoreProgress


@dataclass
class CommittedStore:
    """A store of a copy: what it is, its bytes, and what it took to bring them up to date."""

    spec: StoreSpec
    bytes: ByteStore
    restored_records: int = 0
    restore_ns: int = 0


def restore(
    location: DurableLocation,
    pointer: CommitPointer,
    applied: int,
    stores: Mapping[str, CommittedStore],
    progress: RestoreProgress | None = None,
) -> None:
    """Apply the deltas of the pointer after the first `applied` ones, oldest first, to `stores`, and let expire.

    Records of stores that are not among `stores` are left out: another engine holds them. Raises
    DurableFileMissingError, DurableFileCorruptedError.
    """
    missing = pointer.deltas[applied:]
    first_version = pointer.version - len(missing) + 1
    for version, file in enumerate(missing, first_version):
        delta = read_delta(location, file, DeltaInfo(pointer.state_id, pointer.shard, version))
        _apply(delta, location.path(file.name), stores, progress)
    if missing:
        for name, time_ms in pointer.store_times_ms.items():
            if name in stores:
                Segments(stores[name].bytes, *stores[name].spec.retention).advance(time_ms)


def read_delta(location: DurableLocation, file: DurableFile, expected: DeltaInfo) -> Delta:
    """Read a delta that a commit pointer names, checking size, checksum and what it says it is.

    Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    where = location.path(file.name)
    data = location.read(file.name)
    if data is None:
        raise DurableFileMissingError(where, needed_by=f"shard {expected.shard} at version {expected.version}")
    check_content(where, file, data.size, digest(data))
    delta = decode_delta(data, where)
    if delta.info != expected:
        raise DurableFileCorruptedError(where, problem=f"is {delta.info}, wanted was {expected}")
    return delta


def _apply(delta: Delta, where: str, stores: Mapping[str, CommittedStore], progress: RestoreProgress | None) -> None:
    for name, batch in delta.batches():
        store = stores.get(name)
        if store is None:
            continue
        started_ns = time.perf_counter_ns()
        try:
            if store.spec.kind is StoreKind.VERSIONED:
                _replay_versions(store, delta.logged(name), batch)
            else:
                store.bytes.write(delta.changes(store.spec, batch))
        except FormatError as cause:
            raise DurableFileCorruptedError(
                where, problem=f"has a record that can't be one of store {name!r}: {cause}"
            ) from cause
        store.restored_records += batch.num_rows
        if progress is not None:
            progress.restored(name, delta.info.version, batch.num_rows)
        store.restore_ns += time.perf_counter_ns() - started_ns


def _replay_versions(store: CommittedStore, logged: LoggedStore, batch: pa.RecordBatch) -> None:
    pending = WriteSet(store.bytes)
    rows = VersionedRows(pending, Segments(pending, *store.spec.retention, logged.stream_time_ms))
    for key, value, timestamp_ms, header_bytes in changelog_records(batch):
        stored = restore_stored(logged.format, store.spec.format, value, timestamp_ms, header_bytes)
        rows.put(key, stored, timestamp_ms)
    pending.apply_to(store.bytes)
