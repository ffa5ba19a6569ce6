"""Our stores do what Kafka Streams 4.3.1 did: the operations of its golden fixtures, run again.

Where we mean to differ, a test says so: its name tells in what, its comment why.
"""

from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import EveryWrite
from statestore.stores.iterator import Windowed
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.golden.replay import (
    ENGINES,
    Engine,
    InMemory,
    OnRocksDB,
    OnWriteSet,
    as_json,
    builder_of,
    by_record,
    content_of,
    families_of,
    headers_of,
    live,
    perform,
    records_of,
    spec_of,
    versions_of,
)

REPLAYABLE = [name for name in FIXTURES if not name.startswith("old-")]
UPGRADED = [name for name in REPLAYABLE if "-from-" in name]
LATEST = "ffffffffffffffff6b"
RUNS = [(name, engine) for name in REPLAYABLE for engine in ENGINES if engine != "memory" or name not in UPGRADED]


class Run:
    """A fixture, all sessions of which were run again."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.golden = load_fixture(name)
        self.kind: str = self.golden.fixture["kind"]
        self.spec = spec_of(self.kind)
        self.sessions: list[dict[str, Any]] = self.golden.fixture["sessions"]
        self.engine = engine
        self.lives = [live(engine, item["openedAs"], item["ops"], caching=item["caching"]) for item in self.sessions]

    def reopened(self, stream_time_ms: int = -1) -> Any:
        """Return the store on what was left; by default it knows as little of the time as Kafka's does."""
        return builder_of(self.kind).build(self.engine.open(self.spec), stream_time_ms=stream_time_ms)


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    name, engine = request.param
    return Run(name, ENGINES[engine](tmp_path))


def of_fixtures(wanted: Any = lambda spec: True) -> pytest.MarkDecorator:
    runs = [(name, engine) for name, engine in RUNS if wanted(spec_of(load_fixture(name).fixture["kind"]))]
    assert runs
    return pytest.mark.parametrize("run", runs, ids=" on ".join, indirect=True)


def test_every_kind_of_fixture_is_replayed() -> None:
    assert len(REPLAYABLE) == 21
    assert len(UPGRADED) == 6
    assert sum(item["caching"] for name in REPLAYABLE for item in load_fixture(name).fixture["sessions"]) == 3


@of_fixtures()
def test_operations_return_what_kafka_returned(run: Run) -> None:
    for session, lived in zip(run.sessions, run.lives, strict=True):
        assert lived.returned == [operation["returned"] for operation in session["ops"]]


@of_fixtures()
def test_the_changelog_is_kafkas_record_for_record(run: Run) -> None:
    for session, lived in zip(run.sessions, run.lives, strict=True):
        assert lived.changelog == records_of(session["changelog"])


@of_fixtures()
def test_a_batch_keeps_the_last_record_of_each_key_or_every_version(run: Run) -> None:
    for session, lived in zip(run.sessions, run.lives, strict=True):
        records = records_of(session["changelog"])
        if run.spec.kind is StoreKind.VERSIONED:
            assert lived.batch_changelog == records
        else:
            assert len(lived.batch_changelog) == len({record.key for record in records})
            assert {record.key: record for record in lived.batch_changelog} == {
                record.key: record for record in records
            }


@of_fixtures(lambda spec: not spec.retain_duplicates)
def test_the_stored_bytes_are_kafkas_entry_for_entry(run: Run) -> None:
    assert run.engine.families() == families_of(run.golden.raw)


@of_fixtures(lambda spec: spec.retain_duplicates)
def test_duplicates_are_numbered_alike_in_the_store_and_its_changelog(run: Run) -> None:
    # In Kafka a null put, which changes nothing, counts in the changelog only: from then on a store and what is
    # restored from its changelog have the same values under different numbers. Ours counts it in both, so the store has
    # the keys that Kafka's has after a restore.
    written, restored = families_of(run.golden.raw), families_of(run.golden.restored)
    assert written != restored
    assert run.engine.families() == restored


@of_fixtures()
def test_the_content_after_reopening_is_kafkas_in_its_order(run: Run) -> None:
    store = run.reopened()
    assert content_of(store, run.golden) == run.golden.logical["entries"]
    run.engine.close()


@of_fixtures(lambda spec: spec.kind is not StoreKind.VERSIONED)
def test_point_reads_see_what_scans_see_and_finish_an_upgrade(run: Run) -> None:
    store = run.reopened()
    newest: dict[Any, Any] = {}
    for entry in run.golden.logical["entries"]:
        key = bytes.fromhex(entry["key"])
        # Of duplicates a point read shows the newest: the last of those with the same window. Kafka's shows it only if
        # nothing was put into any other window since, and nothing at all after a restart.
        newest[Windowed(key, entry["start"], entry["end"]) if "start" in entry else key] = entry
    assert (store.upgrade_progress().entries_left > 0) == (run.golden.name in UPGRADED)
    for key, entry in newest.items():
        shown = as_json(point_read(store, run.spec.kind, key))
        value = shown if isinstance(shown, dict) else {"value": shown}
        assert value == {name: entry[name] for name in value}
    assert store.upgrade_progress().is_finished
    run.engine.close()


def point_read(store: Any, kind: StoreKind, key: Any) -> Any:
    if kind is StoreKind.WINDOW:
        return store.fetch(key.key, key.start_ms)
    return store.fetch_session(*key) if kind is StoreKind.SESSION else store.get(key)


@of_fixtures(lambda spec: spec.kind is StoreKind.VERSIONED)
def test_versions_read_as_in_kafka_before_it_was_closed(run: Run) -> None:
    # Kafka forgets stream time and segments when it is closed. Our drivers keep the stream time, and segments are found
    # on disk: a reopened store reads as it did before.
    last_put_ms = max(record.timestamp_ms for lived in run.lives for record in lived.changelog)
    store = run.reopened(last_put_ms)
    (session,) = run.sessions
    assert len(session["versions"]) == 8
    for golden in session["versions"]:
        key = bytes.fromhex(golden["key"])
        assert as_json(store.get(key)) == golden["get"]
        assert versions_of(store, key) == golden["allVersions"]
        ends = {version["timestamp"]: version["validTo"] for version in golden["allVersions"]}
        for read in golden["getAsOf"]:
            # Kafka's store leaves the end of a version out when it is asked for a point in time; ours has it.
            found = read["record"] and {**read["record"], "validTo": ends[read["record"]["timestamp"]]}
            assert as_json(store.get(key, read["asOf"])) == found
    run.engine.close()


@pytest.mark.parametrize("name", [name for name in REPLAYABLE if not name.endswith("-dup")])
def test_batches_of_one_record_come_to_the_same(name: str, tmp_path: Path) -> None:
    # As Spark runs it: the store is opened for each batch, and is told its stream time. Not with duplicates: Kafka
    # numbers those of all windows in one row as long as it runs, ours go on from the window's own after a restart.
    golden = load_fixture(name)
    engine = OnWriteSet((OnRocksDB if name in UPGRADED else InMemory)(tmp_path))
    for session in golden.fixture["sessions"]:
        time_ms, lives = -1, []
        for _, operations in by_record(session["ops"]):
            kind, caching = session["openedAs"], session["caching"]
            lives.append(live(engine, kind, operations, caching=caching, stream_time_ms=time_ms))
            time_ms = lives[-1].stream_time_ms
        assert [value for lived in lives for value in lived.returned] == [item["returned"] for item in session["ops"]]
        assert [record for lived in lives for record in lived.changelog] == records_of(session["changelog"])
    assert engine.families() == families_of(golden.raw)


@pytest.mark.parametrize("name", [name for name in REPLAYABLE if name.endswith("-cached")])
def test_a_cache_that_is_flushed_once_keeps_the_last_write_of_each_key(name: str, tmp_path: Path) -> None:
    # Kafka's driver flushed after each record. Without that, of the records of a key only the last one is left.
    (session,) = load_fixture(name).fixture["sessions"]
    kind, changelog = session["openedAs"], records_of(session["changelog"])
    engine, context = ENGINES["memory"](tmp_path), TaskRecordContext()
    builder = builder_of(kind, caching=True)
    logs = EveryWrite(builder.spec)
    store = builder.build(engine.open(builder.spec), changelog=logs, context=context)
    for operation in session["ops"]:
        context.timestamp_ms = operation["record"]["timestamp"]
        context.headers = headers_of(operation["record"]["headers"])
        assert as_json(perform(store, kind, operation)) == operation["returned"]
    assert not logs.records()
    store.flush()
    last = {record.key: place for place, record in enumerate(changelog)}
    assert logs.records() == [record for place, record in enumerate(changelog) if last[record.key] == place]
    assert engine.families() == families_of(load_fixture(name).raw)


# Put into a store like that of `versioned` on Kafka Streams 4.3.1, by the program that wrote the fixtures: which do not
# come by these ways. Times that are whole minutes, or one off, are where segments and the history begin.
PUTS = {
    "the history ends within a segment": (
        [(0, None, -1), (359_999, b"a", -1)],
        {
            "00000000000000006b": "000000000000000000000000000000000000000000000000ffffffff",
            LATEST: "0000000000057e3f61",
        },
    ),
    "as old as the history": (
        [(360_000, b"c", -1), (60_000, None, 360_000)],
        {
            "00000000000000066b": "0000000000057e40000000000000ea60000000000000ea60ffffffff",
            LATEST: "0000000000057e4063",
        },
    ),
    "after a tombstone that ends nothing, before the latest": (
        [(0, None, -1), (59_999, b"b", -1), (10_000, b"c", 59_999)],
        {
            "00000000000000006b": "000000000000ea5f00000000000000000000000000002710000000010000000000000000ffffffff63",
            LATEST: "000000000000ea5f62",
        },
    ),
    "the same tombstone again, after what it ends": (
        [(360_001, None, -1), (260_000, b"c", 360_001), (360_001, None, -1)],
        {"00000000000000066b": "0000000000057e41000000000003f7a0000000000003f7a00000000163"},
    ),
    "what a version ends belongs into an older segment": (
        [(50_000, b"b", -1), (260_000, b"a", -1), (150_000, b"a", 260_000)],
        {
            "00000000000000026b": "00000000000249f0000000000000c350000000000000c3500000000162",
            "00000000000000046b": "000000000003f7a000000000000249f000000000000249f00000000161",
            LATEST: "000000000003f7a061",
        },
    ),
    "a tombstone after a tombstone": (
        [(60_001, None, -1), (70_000, None, -1)],
        {"00000000000000016b": "0000000000011170000000000000ea61000000000000ea61ffffffff"},
    ),
}


@pytest.mark.parametrize("name", PUTS)
def test_rows_of_versions_that_kafka_was_seen_to_write(name: str, tmp_path: Path) -> None:
    puts, rows = PUTS[name]
    engine = ENGINES["memory"](tmp_path)
    store = builder_of("versioned").build(engine.open(spec_of("versioned")))
    for time_ms, value, valid_to_ms in puts:
        assert store.put(b"k", value, time_ms) == valid_to_ms
    assert engine.families() == {"default": {bytes.fromhex(key): bytes.fromhex(row) for key, row in rows.items()}}
