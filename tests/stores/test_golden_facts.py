"""Single behaviours of stores, observed on Kafka Streams 4.3.1: ours are the same, or better where a comment says so.

Directories, what may be opened as what, and exactly-once are other tests' business.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.segments import segment_of
from statestore.bytestore.kinds.store_spec import column_family
from statestore.format.serde import Serdes
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import EveryWrite, restored_changes
from statestore.stores.holders import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from statestore.stores.stores import Stores
from tests.support.golden.kafka_streams import facts, load_fixture
from tests.support.golden.replay import (
    ENGINES,
    STORE,
    Engine,
    OnRocksDB,
    as_json,
    builder_of,
    families_of,
    headers_of,
    live,
    records_of,
    spec_of,
    versions_of,
)

Fact = dict[str, Any]
NEW, TIMED, PLAIN = "keyValueWithTimestampAndHeaders", "keyValueWithTimestamp", "default"
HEADERS = [["h", "31"]]
LEGACY = {"kv": PLAIN, "ts-kv": TIMED}
LEGACY_KEYS = (b"a1", b"a2", b"b1", b"b2", b"c1")
OPERATIONS = [name for name in facts() if name.startswith("legacy ")]


@pytest.fixture(params=["rocksdb", "write set"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return ENGINES[request.param](tmp_path)


def fact(beginning: str) -> Fact:
    (found,) = (known for name, known in facts().items() if name.startswith(beginning))
    return found


def operation(name: str, key: bytes, time_ms: int, value: bytes | None, **more: Any) -> Any:
    record = {"timestamp": time_ms, "headers": HEADERS}
    shown = {"timestamp": time_ms, "value": None if value is None else value.hex(), "headers": HEADERS}
    return {"op": name, "key": key.hex(), **shown, "record": record, **more}


def write_legacy(engine: Engine, kind: str) -> None:
    puts = [operation("put", key, 1000 + n, b"v%d" % n) for n, key in enumerate(LEGACY_KEYS)]
    live(engine, kind, puts)


def replayed(engine: Engine, name: str) -> None:
    for session in load_fixture(name).fixture["sessions"]:
        live(engine, session["openedAs"], session["ops"])


def opened(engine: Engine, kind: str, **more: Any) -> Any:
    return builder_of(kind).build(engine.open(spec_of(kind)), **more)


def pairs_json(pairs: Iterator[Any]) -> Any:
    return [[key.hex(), as_json(held)] for key, held in pairs]


def put_all(engine: Engine, changelog: Any) -> EveryWrite:
    """Put what the changelog shows with one `put_all`, which the fixtures don't list among the operations."""
    spec, context = spec_of("headers-kv"), TaskRecordContext()
    context.timestamp_ms, context.headers = 9000, headers_of(HEADERS)
    written = EveryWrite(spec)
    opened(engine, "headers-kv", changelog=written, context=context).put_all(
        (record.key, ValueTimestampHeaders(record.value, record.timestamp_ms, Headers.from_bytes(record.header_bytes)))
        for record in records_of(changelog)
    )
    engine.close()
    return written


def test_there_are_facts_of_every_operation_on_either_legacy_store() -> None:
    assert len(OPERATIONS) == 16


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_a_legacy_store(engine: Engine, name: str, tmp_path: Path) -> None:
    golden = facts()[name]
    legacy = name.split()[1]
    write_legacy(engine, legacy)
    if "putAll" in name:
        assert put_all(engine, golden["changelog"]).records() == records_of(golden["changelog"])
    else:
        lived = live(engine, "headers-kv", golden["ops"])
        assert lived.returned == [item["returned"] for item in golden["ops"]]
        assert lived.changelog == records_of(golden["changelog"])
    assert engine.families() == families_of(golden["afterClose"])
    # Opening alone makes the new family, so that the store can't be opened in the older format any more.
    assert set(OnRocksDB(tmp_path).all_families()) == {LEGACY[legacy], NEW}


@pytest.mark.parametrize("legacy", LEGACY)
def test_scans_of_a_half_upgraded_store(engine: Engine, legacy: str) -> None:
    golden = fact(f"half-upgraded {legacy} ->")
    write_legacy(engine, legacy)
    rewritten = [(b"a2", 2001, b"new-a2"), (b"a15", 2002, b"between"), (b"d", 2003, b"last")]
    live(engine, "headers-kv", [operation("put", *entry) for entry in rewritten])
    before = engine.families()
    store = opened(engine, "headers-kv")
    assert pairs_json(store.all()) == golden["all"]
    assert pairs_json(store.reverse_all()) == golden["reverseAll"]
    assert pairs_json(store.range(b"a2", b"b2")) == golden["range a2..b2"]
    assert pairs_json(store.reverse_range(b"a2", b"b2")) == golden["reverseRange a2..b2"]
    assert pairs_json(store.range(None, b"b1")) == golden["range null..b1"]
    assert pairs_json(store.prefix_scan(b"a", Serdes.bytes())) == golden["prefixScan a"]
    # The sum of both families' estimates, which count each delete of a key that is not there as one entry less.
    assert store.approximate_num_entries() == golden["approximateNumEntries"] == len(golden["all"]) - 2
    engine.close()
    # Scans move nothing.
    assert engine.families() == before == families_of(golden["afterClose"])


@pytest.mark.parametrize("legacy", LEGACY)
def test_a_finished_upgrade_drops_the_legacy_family_at_once(engine: Engine, legacy: str, tmp_path: Path) -> None:
    golden = fact(f"all entries of a {legacy} directory rewritten")
    write_legacy(engine, legacy)
    for key in LEGACY_KEYS:
        assert LEGACY[legacy] in OnRocksDB(tmp_path).all_families()
        live(engine, "headers-kv", [operation("put", key, 5, b"n")])
    # Kafka drops it at the next open, and can't drop `default`; ours is no database's `default`.
    kafkas = {family["name"] for family in golden["after rewriting session"][0]["columnFamilies"]}
    assert LEGACY[legacy] in kafkas
    assert OnRocksDB(tmp_path).all_families() == families_of(golden["after next open and close"])
    assert set(OnRocksDB(tmp_path).all_families()) == {NEW}


def test_of_a_key_in_both_families_the_new_entry_alone_counts(engine: Engine, tmp_path: Path) -> None:
    golden = fact("key 6b613461 present in both column families")
    replayed(engine, "headers-kv-from-ts")
    key, spec = bytes.fromhex("6b613461"), spec_of("headers-kv")
    database = RocksDBDatabase(str(tmp_path / "db"), [])
    database.family(column_family(spec, StoreFormat.TIMESTAMPED)).put(key, bytes(8) + b"stale")
    database.close()
    store = opened(engine, "headers-kv")
    # Kafka's iterators yield both entries, the stale one first.
    stale, new = golden["range key..key"]
    assert (stale[1]["value"], new[1]) == (b"stale".hex(), golden["get"])
    assert pairs_json(store.range(key, key)) == [new]
    assert pairs_json(store.reverse_range(key, key)) == [new]
    assert [pair for pair in pairs_json(store.all()) if pair[0] == key.hex()] == [new]
    assert as_json(store.get(key)) == golden["get"]
    assert pairs_json(store.range(key, key)) == [new]
    # A write leaves nothing behind that would come back.
    store.put(key, None)
    assert store.get(key) is None
    engine.close()
    assert all(key not in entries for entries in engine.families().values())


def test_a_plain_value_has_the_timestamp_minus_one_and_can_be_written_back(engine: Engine) -> None:
    golden = fact("headers-kv over plain entries: get returns timestamp -1")
    replayed(engine, "headers-kv-from-plain")
    spec, context = spec_of("headers-kv"), TaskRecordContext()
    context.timestamp_ms, context.headers = 1, headers_of(HEADERS)
    written = EveryWrite(spec)
    store = opened(engine, "headers-kv", changelog=written, context=context)
    held = store.get(b"untouched")
    assert as_json(held) == golden["get"]
    # Kafka's producer refuses the timestamp, after the store has it. Our changelog takes it, and gives it back.
    assert "Invalid timestamp: -1" in golden["put back"]["error"][0]
    store.put(b"untouched", held)
    assert as_json(store.get(b"untouched")) == golden["get after put back"]
    engine.close()
    (record,) = written.records()
    assert (record.timestamp_ms, record.header_bytes) == (-1, b"")
    (change,) = restored_changes(spec, spec.format, [record])
    assert change == (b"untouched", engine.families()[NEW][b"untouched"])


def test_make_of_a_null_value_is_none_and_of_null_headers_has_none() -> None:
    of_null = fact("ValueTimestampHeaders.make / ValueAndTimestamp.make with a null value")["result"]["ok"]
    assert ValueTimestampHeaders.make(None, 1, headers_of(HEADERS)) is of_null is None
    assert ValueAndTimestamp.make(None, 1) is of_null
    assert AggregationWithHeaders.make(None, headers_of(HEADERS)) is of_null
    without_headers = fact("ValueTimestampHeaders.make with null headers")["result"]["ok"]
    assert as_json(ValueTimestampHeaders.make(b"v", 1, None)) == without_headers


@pytest.mark.parametrize(
    ("name", "builder", "supplier"),
    [
        (
            "headers-kv-over-ts-supplier",
            Stores.timestamped_key_value_store_with_headers_builder,
            Stores.persistent_timestamped_key_value_store(STORE),
        ),
        (
            "headers-kv-over-plain-supplier",
            Stores.timestamped_key_value_store_with_headers_builder,
            Stores.persistent_key_value_store(STORE),
        ),
        (
            "ts-kv-over-headers-supplier",
            Stores.timestamped_key_value_store_builder,
            Stores.persistent_timestamped_key_value_store_with_headers(STORE),
        ),
    ],
)
def test_a_builder_refuses_another_formats_supplier(name: str, builder: Any, supplier: Any) -> None:
    # Kafka takes them all, and what was put comes back without its headers, its timestamp or both.
    put, get = fact(f"store builder over another supplier: {name}")["ops"]
    kept = {part: put[part] for part in get["returned"]}
    assert kept != get["returned"] or "headers" not in kept
    with pytest.raises(ValueError, match=STORE):
        builder(supplier, Serdes.bytes(), Serdes.bytes())


def test_old_versions_are_readable_after_a_reopen(engine: Engine) -> None:
    forgetful = {item["key"]: item for item in fact("versioned directory reopened, before any put")["versions"]}
    after_put = {item["key"]: item for item in fact("versioned directory reopened, after one put")["versions"]}
    replayed(engine, "versioned")
    store = opened(engine, "versioned")
    (session,) = load_fixture("versioned").fixture["sessions"]
    before_close = {item["key"]: item["allVersions"] for item in session["versions"]}
    # Kafka does not list the segments from disk, so it shows the latest versions alone until puts make segments anew.
    assert any(len(before_close[key]) > len(item["allVersions"]) for key, item in forgetful.items())
    for key, item in forgetful.items():
        assert as_json(store.get(bytes.fromhex(key))) == item["get"]
        assert versions_of(store, bytes.fromhex(key)) == before_close[key]

    put_to = "6b613461"
    assert store.put(bytes.fromhex(put_to), b"later", 200_500) == -1
    *older, latest = before_close[put_to]
    now = {**before_close, put_to: [*older, {**latest, "validTo": 200_500}, after_put[put_to]["get"]]}
    for key, item in after_put.items():
        assert as_json(store.get(bytes.fromhex(key))) == item["get"]
        assert versions_of(store, bytes.fromhex(key)) == now[key]
        # What Kafka does show is what ours shows.
        assert all(version in now[key] for version in item["allVersions"])
    engine.close()


def test_duplicates_put_after_a_restart_do_not_overwrite_earlier_ones(engine: Engine) -> None:
    golden = fact("headers-window-dup: sequence numbers")
    first, second = (live(engine, "headers-window-dup", golden[f"life {life} ops"]) for life in (1, 2))
    assert first.returned == [item["returned"] for item in golden["life 1 ops"]]
    assert first.changelog == records_of(golden["life 1 changelog"])
    # In Kafka, the numbers begin at 1 again: the second life replaces what the first one put.
    assert second.returned == [item["returned"] for item in golden["life 2 ops"]]
    kafkas = records_of(golden["life 2 changelog"])
    assert [record.key for record in kafkas] == [record.key for record in first.changelog]
    assert [record[1:] for record in second.changelog] == [record[1:] for record in kafkas]
    numbers = [int.from_bytes(record.key[-4:], "big") for record in first.changelog + second.changelog]
    assert numbers == [1, 2, 3, 4, 5, 6]

    store = opened(engine, "headers-window-dup")
    values = [held.value for _, held in store.fetch(b"a1", 120_000, 120_000)]
    assert values == [b"life1-1", b"life1-2", b"life2-1", b"life2-2"]
    engine.close()
    kept = [families_of(golden[f"after life {life}"])[NEW] for life in (1, 2)]
    assert kept[0].keys() == kept[1].keys()
    assert list(engine.families()[NEW].values()) == [*kept[0].values(), *kept[1].values()]


def test_a_null_among_duplicates_does_not_let_time_go_on(engine: Engine) -> None:
    # As in Kafka 4.3.1, whose store skips it before it looks at the time: nothing expires for what is not stored.
    written = EveryWrite(spec_of("headers-window-dup"))
    store = opened(engine, "headers-window-dup", changelog=written, context=TaskRecordContext())
    store.put(b"a1", ValueTimestampHeaders.make(b"kept", 1), 1)
    store.put(b"a1", None, 1_000_000)
    assert store.stream_time_ms == 1
    assert [held.value for _, held in store.all()] == [b"kept"]
    engine.close()
    assert len(engine.families()[NEW]) == 1
    assert [record.value for record in written.records()] == [b"kept", None]


def test_a_late_write_after_a_reopen_is_accepted_until_a_newer_one_comes(engine: Engine) -> None:
    golden = fact("headers-window reopened: a write at window start 0")
    replayed(engine, "headers-window")
    store = opened(engine, "headers-window")
    store.put(b"a1", ValueTimestampHeaders.make(b"late", 1), 0)
    assert as_json(store.fetch(b"a1", 0))["value"] == b"late".hex()
    assert segments_shown(store) == golden["segments after the late write"]
    store.put(b"a1", ValueTimestampHeaders.make(b"on time", 250_001), 250_000)
    assert store.fetch(b"a1", 0) is None
    engine.close()
    left = {segment_of(key) * 60_000 for key in engine.families()[NEW]}
    assert [f"store.{start_ms}" for start_ms in sorted(left)] == golden["segments after the write at 250000"]


def segments_shown(store: Any) -> list[str]:
    starts_ms = {window.start_ms // 60_000 * 60_000 for window, _ in store.all()}
    return sorted(f"store.{start_ms}" for start_ms in starts_ms)


def test_a_window_store_is_upgraded_segment_by_segment(engine: Engine) -> None:
    golden = fact("headers-window-from-ts: per-segment contents")["afterClose"]
    replayed(engine, "headers-window-from-ts")
    held = engine.families()
    assert held == families_of(golden)
    # A segment that came with the upgrade has nothing in the older format, and the others have both.
    assert {name: {segment_of(key) for key in entries} for name, entries in held.items()} == {
        TIMED: {2, 3},
        NEW: {2, 3, 4},
    }


def test_sessions_are_found_in_segments_of_either_format(engine: Engine) -> None:
    golden = fact("headers-session over session: findSessions")
    replayed(engine, "headers-session-from-plain")
    before = engine.families()
    assert set(before) == {PLAIN, "sessionKeyValueWithHeaders"}
    store = opened(engine, "headers-session")
    fetched = {name: found for name, found in golden.items() if name.startswith("fetch ")}
    assert len(fetched) == 4
    for name, found in fetched.items():
        key = bytes.fromhex(name.removeprefix("fetch "))
        sessions = [
            [{"key": session.key.hex(), "start": session.start_ms, "end": session.end_ms}, as_json(held)]
            for session, held in store.fetch(key)
        ]
        assert sessions == found
    engine.close()
    assert engine.families() == before
