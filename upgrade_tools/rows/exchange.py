"""Export of a state to a file of rows, and import: a new state location from such a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, expiry_spec
from statestore.errors import FormatError
from statestore.format.keys.partitioner import partition_column
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.new_state import NewState, OnEntries
from statestore.recovery.making.placement import KeyOf, record_keys
from statestore.recovery.making.state_filling import with_expiry_stores
from statestore.recovery.metadata.state_metadata import ENTRY_KEYS, ShardBy, metadata_of_stores
from upgrade_tools.errors import RowFileError
from upgrade_tools.rows.expiry import LatestTimes, Unexpired
from upgrade_tools.rows.files import FileFormat, RowFileHead, read_head, read_rows, write_rows
from upgrade_tools.rows.rows import by_store, to_rows, to_writes
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import READING_INTERVAL_MS, READING_RETENTION_MS, State, StateOptions, durable_spec

OnRows = Callable[[int], None]
_PLACEHOLDERS: Final = {"retention_ms": READING_RETENTION_MS, "segment_interval_ms": READING_INTERVAL_MS}
"""Stand for unknown values in the spec of a store that is only read."""


@dataclass(frozen=True)
class Exchanged:
    """What was written: rows of each store, and where they are now."""

    path: str
    rows: Mapping[str, int]
    parts: int
    state_id: str | None = None
    """Of an import, the identity of the new state."""
    expired: int = 0
    """How many rows an import left out."""
    notes: tuple[str, ...] = ()
    """What the user should know of what an export has read."""


def export_state(state: State, path: Path, file_format: FileFormat, on_rows: OnRows) -> Exchanged:
    """Write the stores of a state to a file, which gets its name only once it is whole.

    With a store goes what says when its entries expire. `on_rows` is told of rows as they are written. Raises
    RowFileExistsError, StateStoreError, OSError.
    """
    specs, known = state.specs(), state.store_names()
    beside = (expiry_spec(spec) for spec in specs)
    specs = [*dict.fromkeys([*specs, *(spec for spec in beside if spec.name in known)])]
    counts = {spec.name: 0 for spec in specs}
    recorded = tuple(_recorded(spec) for spec in specs)
    head = RowFileHead(max(state.parts, default=0) + 1, None, recorded)
    if isinstance(state, LocationState):
        entry_keys = {store: keys for store, keys in state.metadata.entry_keys.items() if store in counts}
        head = replace(head, shard_by=state.metadata.shard_by, global_stores=state.global_stores, entry_keys=entry_keys)
    notes = _missing_parts(state)
    with write_rows(path, file_format, head) as file:
        for part in state.parts:
            with state.open(part, specs) as stores:
                for spec in specs:
                    store = stores[spec.name]
                    if not store.closed_cleanly:
                        notes.append(_unclean(spec, part))
                    for writes in logical_writes(spec, store.bytes, store.stream_time_ms):
                        file.write(to_rows(part, spec, writes))
                        counts[spec.name] += len(writes)
                        on_rows(len(writes))
    return Exchanged(str(path), counts, head.parts, notes=tuple(notes))


def _missing_parts(state: State) -> list[str]:
    missing = sorted({*range(max(state.parts, default=0))} - {*state.parts})
    if not missing:
        return []
    return [
        f"there is nothing here of the parts {missing}, and an import makes their shards empty: if they have state, "
        "bring them from the application's other instances, and export all"
    ]


def _unclean(spec: StoreSpec, part: int) -> str:
    return (
        f"store {spec.name} of part {part} was not closed cleanly, so it may hold changes that the application has not "
        "committed: start the application, stop it cleanly, and export it then"
    )


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import; None takes what the file says."""

    said: StateOptions
    """What the user says of the stores, and where there is room."""
    shards: int | None = None
    """Rows are placed on this many shards by key; None keeps them in the parts that they are from."""
    expiry_headers: Mapping[str, str] = field(default_factory=dict)
    """The header by which the entries of a store expire, by store."""


def import_state(
    path: Path, file_format: FileFormat, target: DurableLocation, options: ImportOptions, on_entries: OnEntries
) -> Exchanged:
    """Make a state of a file in an empty location, and check it entry by entry.

    What has expired by the latest time of its store in its shard is left out: with segmented stores, the file is read
    twice. `on_entries` is told of rows, and of entries as they are checked. Raises RowFileError, UnknownKindError if a
    store's retention is unknown, NewStateError and LocationError: then the location holds no state.
    """
    head = read_head(path, file_format)
    specs = {spec.name: spec for spec in (_spec(store, path, options) for store in head.stores)}
    placed_by_key = options.shards is not None
    shards = options.shards or head.parts
    shard_by = "key" if placed_by_key else head.shard_by or "partition"
    try:
        metadata = metadata_of_stores(with_expiry_stores(specs.values(), options.expiry_headers), shards, shard_by)
    except ValueError as cause:
        raise RowFileError(str(path), problem=str(cause)) from cause
    key_of = record_keys(replace(metadata, topology=({ENTRY_KEYS: head.entry_keys},)))
    latest = LatestTimes(options.shards, key_of)
    if any(spec.kind.is_segmented for spec in specs.values()):
        for part, spec, rows in _rows_of_stores(path, file_format, specs):
            latest.see(part, spec, rows)
            on_entries("looking for the latest times", rows.num_rows)
    made = NewState.claim(target, metadata, f"the file {path.name}", work_dir=options.said.work_dir)
    made = replace(made, expiry_headers=options.expiry_headers)
    filling, unexpired = made.filling(), Unexpired(latest)
    for part, spec, rows in _rows_of_stores(path, file_format, specs):
        if not placed_by_key and not 0 <= part < shards:
            raise RowFileError(
                str(path), problem=f"a row is of part {part}, but the file says that it has {shards} parts"
            )
        try:
            writes = to_writes(spec, rows)
            if not placed_by_key:
                placed = [(part, writes)]
            elif spec.name in head.global_stores:
                placed = [(shard, writes) for shard in range(shards) if part == 0]
            else:
                placed = _placed(head, spec, part, writes, shards, key_of.get(spec.name))
        except FormatError as cause:
            raise RowFileError(str(path), problem=str(cause)) from cause
        for shard, belonging in placed:
            filling.put(shard, spec.name, unexpired.of(shard, spec, belonging))
        on_entries("importing", len(writes))
    for shard, store, live in unexpired.left():
        filling.put(shard, store, live)
    filled = made.read_back(filling, on_entries)
    made.complete(filled)
    return Exchanged(str(target), made.entries(filled), shards, metadata.state_id, unexpired.expired)


def _placed(
    head: RowFileHead, spec: StoreSpec, part: int, writes: list[LogicalWrite], shards: int, key_of: KeyOf | None
) -> list[tuple[int, list[LogicalWrite]]]:
    """Return the writes for each shard, placed as records are: by `key_of` of their keys without times, or by these.

    Raises FormatError for a key that has no record's key in it, or that would not be where it was.
    """
    keys = layout_of(spec).plain_keys([write.key for write in writes])
    if key_of is not None:
        keys = [key_of(key) for key in keys]
    column = pa.array(keys, pa.binary())
    if head.shard_by == ShardBy.KEY.value and (partition_column(column, head.parts) != part).any():
        raise FormatError(
            "row",
            f"store {spec.name!r} has keys in part {part} where records with them do not go, so they are not those of "
            "records. Rescale the state that it was exported from, or import without --shards",
        )
    places = partition_column(column, shards).tolist()
    return [
        (shard, [write for write, place in zip(writes, places, strict=True) if place == shard])
        for shard in sorted(set(places))
    ]


def _rows_of_stores(
    path: Path, file_format: FileFormat, specs: Mapping[str, StoreSpec]
) -> Iterator[tuple[int, StoreSpec, pa.RecordBatch]]:
    for batch in read_rows(path, file_format):
        for part, store, rows in by_store(batch):
            if store not in specs or part is None:
                raise RowFileError(
                    str(path),
                    problem=f"a row is of store {store!r} and part {part}; the file's stores are {sorted(specs)}",
                )
            yield part, specs[store], rows


def _recorded(spec: StoreSpec) -> dict[str, object]:
    """Return a spec as JSON, without placeholders for unknown values."""
    return {name: value for name, value in spec.to_json().items() if (name, value) not in _PLACEHOLDERS.items()}


def _spec(recorded: dict[str, object], path: Path, options: ImportOptions) -> StoreSpec:
    """Return the spec of a store in a file, with what options say of it."""
    try:
        segmented = StoreKind(recorded.get("kind")).is_segmented
        spec = StoreSpec.from_json({**_PLACEHOLDERS, **recorded} if segmented else recorded)
    except (FormatError, ValueError) as cause:
        raise RowFileError(
            str(path), problem=f"it describes a store that this release does not know ({cause})"
        ) from cause
    return durable_spec(spec, options.said, str(path))
