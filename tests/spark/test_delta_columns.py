"""A shard's deltas as columns hold what its database would hold."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore import Headers
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.bytestore.protocol import NoRecord
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.delta_columns import MAX_HELD_BYTES, columns_of_deltas
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark.datasource.row_filter import EVERY_ROW
from statestore.spark.datasource.store_scan import asked_columns, entry_columns
from statestore.stores.layers.layer import ChangeLoggingLayer, RetainingLayer
from tests.support.recovery import on_record

HEADERS = Headers([("trace", b"1"), ("trace", None)]).to_bytes()
WITHOUT_VERSIONS = [kind for kind in StoreType if kind.store_kind is not StoreKind.VERSIONED]


def spec_of(kind: StoreType) -> StoreSpec:
    segmented = kind.store_kind.is_segmented
    times = (100, 50) if segmented else (None, None)
    window_ms = 10 if kind.store_kind.has_windows else None
    return StoreSpec("s", kind.store_kind, kind.store_format, *times, window_ms, kind.retain_duplicates)


def state_of(spec: StoreSpec, home: Path, **options: int) -> ShardedState:
    state = ShardedState(
        "an-id",
        DurableLocation(home / "state"),
        (spec, StoreSpec("other", StoreKind.KEY_VALUE, StoreFormat.PLAIN, None, None, None, False)),
        LocalDirectory(str(home / "local")),
        recovery=RecoveryOptions(**options),
    )
    return on_record(state)


def write_batch(state: ShardedState, pointer: CommitPointer, spec: StoreSpec, rng: random.Random) -> CommitPointer:
    """Put and delete under few keys, some of them too late, in both stores."""
    layout = layout_of(spec)
    with state.open(pointer) as batch:
        store = batch.stores["s"]
        time_ms = pointer.store_times_ms.get("s", -1)
        segments = Segments(store.bytes, *spec.retention, time_ms) if spec.kind.is_segmented else None
        below = store.bytes if segments is None else RetainingLayer(store.bytes, segments)
        logged = ChangeLoggingLayer(below, spec, store.changelog, NoRecord())
        for number in range(rng.choice((0, 1, 30))):
            start_ms = rng.randrange(40) * 10
            key, _ = layout.join(
                rng.choice((b"", b"a", b"a\0", b"b\xff")), start_ms, start_ms + rng.randrange(20), number
            )
            if segments is not None:
                segments.advance(layout.put_time_ms(key))
            stored = join_stored(spec.format, b"%d" % number, rng.randrange(9), rng.choice((b"", HEADERS)))
            logged.put(layout.physical_key(key), None if rng.random() < 0.3 else stored)
        other = batch.stores["other"]
        ChangeLoggingLayer(other.bytes, other.spec, other.changelog, NoRecord()).put(b"k", b"%d" % rng.randrange(9))
        times_ms = {} if segments is None else {"s": segments.stream_time_ms}
        return batch.commit(BatchEnd(store_times_ms=times_ms)).pointer


def found(columns: Iterable[dict[str, pa.Array]]) -> list[dict[str, Any]]:
    names = ("key", "start_ms", "end_ms", "value", "timestamp_ms", "headers")
    return [row for each in columns for row in pa.table({name: each[name] for name in names}).to_pylist()]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def in_deltas(
    state: ShardedState, pointer: CommitPointer, spec: StoreSpec, max_held_bytes: int = MAX_HELD_BYTES
) -> list[dict[str, Any]] | None:
    with (
        state.spill_space(0) as space,
        columns_of_deltas(state.location, pointer, spec, space, max_held_bytes) as columns,
    ):
        return None if columns is None else in_order(found(asked_columns(columns, EVERY_ROW, with_headers=True)))


def in_database(state: ShardedState, pointer: CommitPointer, spec: StoreSpec) -> list[dict[str, Any]]:
    with state.open(pointer) as batch:
        return in_order(found(entry_columns(spec, batch.stores["s"].bytes, EVERY_ROW, with_headers=True)))


@pytest.mark.parametrize("kind", WITHOUT_VERSIONS)
@pytest.mark.parametrize("seed", range(2))
def test_deltas_hold_what_their_database_holds(kind: StoreType, seed: int, tmp_path: Path) -> None:
    spec, rng = spec_of(kind), random.Random(seed)
    state = state_of(spec, tmp_path)
    pointer = state.pointer(0, None)
    for _ in range(6):
        assert in_deltas(state, pointer, spec) == in_database(state, pointer, spec)
        pointer = write_batch(state, pointer, spec, rng)
    assert in_database(state, pointer, spec)


HEADED = spec_of(StoreType.HEADERS_KV)


@pytest.mark.parametrize(
    ("spec", "read_as", "options", "max_held_bytes"),
    [
        pytest.param(HEADED, None, {"snapshot_every_deltas": 1, "retained_versions": 1}, 1 << 20, id="snapshots"),
        pytest.param(HEADED, None, {}, 2_000, id="more than may be held, as files"),
        pytest.param(HEADED, None, {}, 20_000, id="more than may be held, as keys"),
        pytest.param(spec_of(StoreType.TS_KV), HEADED, {}, 1 << 20, id="upgraded"),
    ],
)
def test_what_takes_a_database_is_left_to_it(
    spec: StoreSpec, read_as: StoreSpec | None, options: dict[str, int], max_held_bytes: int, tmp_path: Path
) -> None:
    state, rng = state_of(spec, tmp_path, **options), random.Random(1)
    pointer = state.pointer(0, None)
    while pointer.version < 12:
        pointer = write_batch(state, pointer, spec, rng)
    assert in_deltas(state, pointer, read_as or spec, max_held_bytes) is None


def test_of_many_records_only_the_keys_are_held(tmp_path: Path) -> None:
    state = state_of(HEADED, tmp_path)
    pointer = state.pointer(0, None)
    for number in range(3):
        with state.open(pointer) as batch:
            store = batch.stores["s"]
            logged = ChangeLoggingLayer(store.bytes, HEADED, store.changelog, NoRecord())
            for key in range(number * 30, number * 30 + 100):
                value = join_stored(HEADED.format, bytes([number]) * 1_000, key, HEADERS)
                logged.put(b"%04d" % key, None if key % 7 == number else value)
            pointer = batch.commit().pointer
    with (
        state.spill_space(0) as space,
        columns_of_deltas(state.location, pointer, HEADED, space, 20_000) as columns,
    ):
        assert columns is not None  # 300 keys take less, and each value 1,000 bytes
        entries = found(asked_columns(columns, EVERY_ROW, with_headers=True))
        assert in_order(entries) == in_database(state, pointer, HEADED)


def test_versions_take_a_database(tmp_path: Path) -> None:
    spec = spec_of(StoreType.HEADERS_VERSIONED)
    state = state_of(spec, tmp_path)
    assert in_deltas(state, state.pointer(0, None), spec) is None


def test_a_damaged_delta_is_named(tmp_path: Path) -> None:
    state = state_of(HEADED, tmp_path)
    pointer = write_batch(state, state.pointer(0, None), HEADED, random.Random(1))
    (file,) = pointer.deltas
    path = tmp_path / "state" / file.name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DurableFileCorruptedError, match=path.name):
        in_deltas(state, pointer, HEADED)


def test_a_key_that_is_none_of_the_store_is_refused(tmp_path: Path) -> None:
    windows = spec_of(StoreType.HEADERS_WINDOW)
    state = state_of(windows, tmp_path)
    with state.open(state.pointer(0, None)) as batch:
        batch.stores["s"].changelog.append(b"short", b"\0" * 9, NoRecord())
        pointer = batch.commit().pointer
    with pytest.raises(DurableFileCorruptedError, match="can't be one of store 's'"):
        in_deltas(state, pointer, windows)
