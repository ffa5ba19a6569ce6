"""What a store of a shard holds, as columns straight out of its deltas: for readers, who need no database of it.

Of most shards that are read, all deltas since the first are listed: before the second snapshot, and of a state that was
made by a tool. Their columns, of each key the last record that there is, are the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.chunks import slices
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout, layout_of
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import DurableFileCorruptedError, FormatError
from statestore.format.binary_columns import Integers, row_sizes
from statestore.format.key_groups import KeyGroups
from statestore.recovery.commit.delta import DeltaInfo
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.from_deltas import open_delta

MAX_HELD_BYTES: Final = 128 << 20
"""Of larger columns a database is made, on disk."""
_RECORD_COLUMNS: Final = ("key", "value", "timestamp", "header_bytes")


def columns_of_deltas(
    location: DurableLocation,
    pointer: CommitPointer,
    spec: StoreSpec,
    space: SpillSpace,
    max_held_bytes: int = MAX_HELD_BYTES,
) -> Iterator[dict[str, pa.Array]] | None:
    """Return the entries of a store at the version of `pointer`, some MB at a time, in the order of the store's bytes.

    As the columns key, start_ms, end_ms, value, timestamp_ms and headers, which are header bytes; null what the store
    does not have. None if that takes a database: for stores that keep versions or were upgraded, deltas that begin at
    a snapshot, or more than `max_held_bytes`. Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    compressed_bytes = sum(file.size_bytes for file in pointer.deltas)
    if LAYOUTS[spec.kind].keeps_versions or pointer.base_version > 0 or compressed_bytes > max_held_bytes:
        return None
    records = _records(location, pointer, spec, space, max_held_bytes)
    return None if records is None else _entries(location, pointer, spec, records)


def _records(
    location: DurableLocation, pointer: CommitPointer, spec: StoreSpec, space: SpillSpace, max_held_bytes: int
) -> dict[str, pa.Array] | None:
    """Return the records of all deltas in order, None if there are too many, or some are of another format."""
    held: dict[str, list[pa.Array]] = {name: [] for name in _RECORD_COLUMNS}
    held_bytes = 0
    for version, file in enumerate(pointer.deltas, 1):
        with open_delta(location, file, DeltaInfo(pointer.state_id, pointer.shard, version), space) as delta:
            for name, batch in delta.batches():
                if name != spec.name:
                    continue
                held_bytes += batch.nbytes
                if held_bytes > max_held_bytes or delta.logged_store(name).format is not spec.format:
                    return None
                for column, arrays in held.items():
                    arrays.append(batch.column(column))
    return {name: pa.concat_arrays(held.pop(name)) for name in _RECORD_COLUMNS if held[name]}


def _entries(
    location: DurableLocation, pointer: CommitPointer, spec: StoreSpec, records: dict[str, pa.Array]
) -> Iterator[dict[str, pa.Array]]:
    if not records:
        return
    layout = layout_of(spec)
    rows = pa.array(KeyGroups(records["key"]).last_rows)
    rows = rows.filter(pc.is_valid(records["value"].take(rows)))
    try:
        keys = records["key"].take(rows)
        places = layout.record_columns(keys, records["timestamp"].take(rows))
    except FormatError as cause:
        raise DurableFileCorruptedError(
            location.path(pointer.deltas[-1].name),
            cause=f"or a delta before it, has a record that can't be one of store {spec.name!r}: {cause}",
        ) from cause
    order = _in_store_order(layout, pointer, keys, dict(zip(("start_ms", "end_ms"), places[1:], strict=True)))
    rows = rows.take(order)
    sized = [records[name].take(rows) for name in ("key", "value", "header_bytes")]
    sizes: Integers = np.sum([row_sizes(column) for column in sized], axis=0)
    for part in slices(sizes):
        of_part = rows[part]
        plain, starts_ms, ends_ms = (column.take(order[part]) for column in places)
        count = len(of_part)
        yield {
            "key": plain,
            "start_ms": starts_ms,
            "end_ms": ends_ms,
            "value": records["value"].take(of_part),
            "timestamp_ms": records["timestamp"].take(of_part)
            if spec.format.has_timestamp
            else pa.nulls(count, pa.int64()),
            "headers": records["header_bytes"].take(of_part)
            if spec.format.has_headers
            else pa.nulls(count, pa.binary()),
        }


def _in_store_order(
    layout: KindLayout, pointer: CommitPointer, keys: pa.BinaryArray, times_ms: dict[str, pa.Int64Array]
) -> pa.Array:
    """Return where the entries with these logged keys stand, in the order of physical keys, without expired ones."""
    if layout.segment_time_column is None:
        return pc.sort_indices(keys)
    retention_ms, interval_ms = layout.spec.retention
    stream_time_ms = pointer.store_times_ms.get(layout.spec.name, -1)
    first_live = Segments(MemoryByteStore(layout.spec.name), retention_ms, interval_ms, stream_time_ms).first_live
    ids = times_ms[layout.segment_time_column].to_numpy() // interval_ms
    live = np.flatnonzero(ids >= first_live)
    found = pa.table({"segment": ids[live], "key": keys.take(pa.array(live))})
    order = pc.sort_indices(found, sort_keys=[("segment", "ascending"), ("key", "ascending")])
    return pa.array(live).take(order)
