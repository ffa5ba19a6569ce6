"""What rescaling is made of: initial pointers, record keys, and versions as puts."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Serdes, Topology
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows
from statestore.errors import FormatError
from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError
from statestore.format.keys.due_key import timer_key
from statestore.format.keys.entry_key import list_entry_key, map_entry_key, sized
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp_headers
from statestore.operators.keyed_state import keyed_state_store
from statestore.operators.state_handle import Timers, timer_store
from statestore.processor.nodes import Operator
from statestore.recovery.commit.pointer import (
    CommitPointer,
    DurableFile,
    initial_name,
    initial_pointer,
    write_initial_pointer,
)
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.placement import record_keys
from statestore.recovery.making.rescale import parts
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata, read_metadata
from statestore.stores.builder import PartStore
from tests.support.recovery.rescaling import KEYS, Idle, States

POINTER = CommitPointer("s", 3, 1, (DurableFile("shards/0003/deltas/x.arrow", 7, "00"),), 2, 99, {"w": 5})


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path)


def test_an_initial_pointer_is_read_as_it_was_written(location: DurableLocation) -> None:
    write_initial_pointer(location, POINTER)
    assert initial_pointer(location, "s", 3) == POINTER


def test_a_missing_initial_pointer_is_not_an_empty_shard(location: DurableLocation) -> None:
    with pytest.raises(DurableFileMissingError, match=r"shards/0003/initial\.json"):
        initial_pointer(location, "s", 3)


def damaged(text: bytes) -> list[bytes]:
    fields = json.loads(text)
    return [
        b"",
        text[:-10],
        text.replace(b"99", b"98"),
        json.dumps({**fields, "digest": 0}).encode(),
        json.dumps({**fields, "format": 2}).encode(),
        json.dumps({**fields, "pointer": "{}"}).encode(),
        b"[]",
        b"\xff",
    ]


@pytest.mark.parametrize("number", range(8))
def test_a_damaged_initial_pointer_is_named(location: DurableLocation, tmp_path: Path, number: int) -> None:
    write_initial_pointer(location, POINTER)
    file = tmp_path / initial_name(3)
    file.write_bytes(damaged(file.read_bytes())[number])
    with pytest.raises(DurableFileCorruptedError, match=r"shards/0003/initial\.json.*readable initial pointer"):
        initial_pointer(location, "s", 3)


def test_an_initial_pointer_of_something_else_is_named(location: DurableLocation, tmp_path: Path) -> None:
    write_initial_pointer(location, POINTER)
    with pytest.raises(DurableFileCorruptedError, match="is that of shard 3 of state s"):
        initial_pointer(location, "t", 3)
    (tmp_path / initial_name(3)).rename(tmp_path / "shards" / "other")
    write_initial_pointer(location, replace(POINTER, shard=4))
    (tmp_path / initial_name(4)).rename(tmp_path / initial_name(3))
    with pytest.raises(DurableFileCorruptedError, match="is that of shard 4"):
        initial_pointer(location, "s", 3)


class PerKey(Idle):
    """Keeps a list, a map and timers of keys."""


def per_key() -> Topology:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    stores = [
        PartStore(keyed_state_store(name, Serdes.string(), ttl=50, ttl_clock="event"), name)
        for name in ("list", "map", "value")
    ]
    timers = PartStore(timer_store("timers"), "timers")
    return topology.add_operator(Operator("test", "p", PerKey, (*stores, timers), parents=("in",)))


def fill_per_key(stores: Mapping[str, Any], key: bytes) -> None:
    def value(n: int) -> bytes:
        return encode_value_timestamp_headers(str(n).encode(), n, b"") or b""

    for n in range(3):
        stores["list"]._inner.put(list_entry_key(key, n), value(n))
        stores["map"]._inner.put(map_entry_key(key, b"m%d" % n), value(n))
        Timers(stores["timers"]).register(key, 10 + n)
    stores["value"]._inner.put(key, value(1))


def test_entries_whose_keys_the_library_makes_go_with_their_records(tmp_path: Path) -> None:
    states = States(tmp_path, per_key(), 3)
    for shard in range(3):
        keys = [key.encode() for key in KEYS if states.shard_of(key) == shard]
        states.run(shard, lambda stores, keys=keys: [fill_per_key(stores, key) for key in keys])
    states.rescaled(4)
    made = states.opened()
    for shard, contents in enumerate(made.contents()):
        keys = [key.encode() for key in KEYS if made.shard_of(key) == shard]
        assert {entry.key for entry in contents["list"]} == {list_entry_key(key, n) for key in keys for n in range(3)}
        assert {entry.key[:-2] for entry in contents["map"]} == {sized(key) + b"\0" for key in keys}
        assert {timer_key(entry.key) for entry in contents["timers"]} == set(keys) != set()
        assert len(contents["list-expiry"]) == 2 * len(contents["list"])
        assert len(contents["value-expiry"]) == 2 * len(contents["value"]) == 2 * len(keys)


def test_what_keys_are_made_of_is_recorded_for_states_that_did_not_know_it(tmp_path: Path) -> None:
    topology = per_key()
    asked = StateMetadata("s", 1, "key", (0,), topology.store_specs(), topology.to_json())
    before = tuple({name: value for name, value in node.items() if name != "entry_keys"} for node in asked.topology)
    location = DurableLocation(tmp_path)
    agree_on_metadata(location, replace(asked, topology=before))
    assert set(record_keys(read_metadata(location))) == {"list-expiry", "map-expiry", "value-expiry"}
    agree_on_metadata(location, asked)
    assert read_metadata(location) == replace(asked, generation=1)
    assert set(record_keys(asked)) >= {"list", "map", "value", "timers", "list-expiry"}


@pytest.mark.parametrize("wrong", [b"", b"\0\0\0\5abc", b"\0\0"])
def test_keys_that_can_not_be_the_librarys_are_refused(wrong: bytes) -> None:
    asked = StateMetadata("s", 1, "key", (0,), per_key().store_specs(), per_key().to_json())
    known = record_keys(asked)
    for store in ("list", "map", "timers", "list-expiry"):
        with pytest.raises(FormatError):
            known[store](wrong)


VERSIONS = StoreSpec("v", StoreKind.VERSIONED, StoreFormat.PLAIN, 100, 30)
PUTS = st.lists(
    st.tuples(st.sampled_from([b"", b"a", b"b"]), st.none() | st.binary(max_size=2), st.integers(0, 400)), max_size=40
)


def replayed(writes: list[LogicalWrite]) -> tuple[MemoryDatabase, VersionedRows]:
    database = MemoryDatabase(["v"])
    rows = VersionedRows(database.family("v"), Segments(database.family("v"), *VERSIONS.retention))
    for key, stored, timestamp_ms in sorted(writes, key=lambda write: write.timestamp_ms or 0):
        rows.put(key, stored, timestamp_ms or 0)
    return database, rows


@settings(max_examples=300)
@given(PUTS)
def test_versions_are_the_puts_that_make_them(puts: list[tuple[bytes, bytes | None, int]]) -> None:
    database = MemoryDatabase(["v"])
    segments = Segments(database.family("v"), *VERSIONS.retention)
    rows = VersionedRows(database.family("v"), segments)
    for key, stored, timestamp_ms in puts:
        rows.put(key, stored, timestamp_ms)
    now_ms = segments.stream_time_ms
    writes = [write for step in logical_writes(VERSIONS, database.family("v"), now_ms) for write in step]
    again, copy = replayed(writes)
    Segments(again.family("v"), *VERSIONS.retention).advance(now_ms)
    assert [w for step in logical_writes(VERSIONS, again.family("v"), now_ms) for w in step] == writes
    # What is read of it is the same, at any time in its history, and so is what later puts make of it.
    copy = VersionedRows(again.family("v"), Segments(again.family("v"), *VERSIONS.retention, now_ms))
    rng = random.Random(len(puts))
    for _ in range(3):
        for key in (b"", b"a", b"b"):
            assert list(copy.between(key, 0, 1_000)) == list(rows.between(key, 0, 1_000))
            times_ms = range(0, 420, 7)
            assert [copy.get_as_of(key, t) for t in times_ms] == [rows.get_as_of(key, t) for t in times_ms]
        late = (
            rng.choice([b"", b"a", b"b"]),
            rng.choice([None, b"late"]),
            rng.randint(max(0, now_ms - 120), now_ms + 20),
        )
        assert copy.put(*late) == rows.put(*late)


def put_as_delta(database: MemoryDatabase, writes: list[LogicalWrite]) -> None:
    rows = VersionedRows(database.family("v"), Segments(database.family("v"), *VERSIONS.retention))
    for key, stored, timestamp_ms in sorted(writes, key=lambda write: write.timestamp_ms or 0):
        rows.put(key, stored, timestamp_ms or 0)


@settings(max_examples=300)
@given(st.lists(PUTS.filter(bool), min_size=2, max_size=3))
def test_versions_after_stream_time_are_put_such_that_none_expires(
    shards: list[list[tuple[bytes, bytes | None, int]]],
) -> None:
    # What rescaling makes of shards that are at different times: one at the earliest, with versions after it.
    old = []
    for number, puts in enumerate(shards):
        database = MemoryDatabase(["v"])
        segments = Segments(database.family("v"), *VERSIONS.retention)
        rows = VersionedRows(database.family("v"), segments)
        for key, stored, timestamp_ms in puts:
            rows.put(key + bytes([number]), stored, timestamp_ms)
        found = logical_writes(VERSIONS, database.family("v"), segments.stream_time_ms)
        old.append((segments.stream_time_ms, [write for step in found for write in step]))
    joined = MemoryDatabase(["v"])
    for _, puts_of_shard in sorted(old, key=lambda each: -each[0]):
        put_as_delta(joined, puts_of_shard)
    now_ms = min(time_ms for time_ms, _ in old)
    Segments(joined.family("v"), *VERSIONS.retention).advance(now_ms)
    writes = [write for step in logical_writes(VERSIONS, joined.family("v"), now_ms) for write in step]
    # Rescaled again, it holds the same.
    again = MemoryDatabase(["v"])
    order = sorted(parts(0, now_ms, VERSIONS.retention[0], [writes]), key=lambda each: -each[0])
    assert Counter(write for _, part in order for write in part.of(writes)) == Counter(writes)
    for _, part in order:
        put_as_delta(again, part.of(writes))
    Segments(again.family("v"), *VERSIONS.retention).advance(now_ms)
    assert [write for step in logical_writes(VERSIONS, again.family("v"), now_ms) for write in step] == writes


@pytest.mark.parametrize("header_bytes", [b"\x02\x02a\x02b", b"\x02\x02a\x82\x00b", b"\x00", b"no headers"], ids=repr)
def test_header_bytes_keep_their_form_and_the_size_before_them_is_the_shortest(header_bytes: bytes) -> None:
    spec = StoreSpec("h", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)
    database = MemoryDatabase(["h"])
    shortest = encode_value_timestamp_headers(b"v", 7, header_bytes) or b""
    database.family("h").put(b"k", shortest)
    database.family("h").put(b"l", bytes([shortest[0] | 0x80, 0]) + shortest[1:])
    ((first, second),) = logical_writes(spec, database.family("h"), -1)
    assert first.stored == second.stored == shortest
