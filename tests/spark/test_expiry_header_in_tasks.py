"""Retention by a header through tasks: reads, compaction, deltas, snapshots, directories of Kafka Streams, tools."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from statestore import Headers, Processor, Serdes, Stores
from statestore.errors import DataSourceOptionError, TopologyError
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.headers.topic_columns import SourceFields
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark.datasource.source import HeaderStateDataSource
from statestore.spark.datasource.store_scan import StoreScan
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import chain, changelog_of, input_of
from tests.support.recovery.shards import wait_for_uploads
from tests.support.spark.task_batches import TaskBatches
from tests.support.tools.runs import Tools

TEXT = Serdes.string()
WITH_HEADERS = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("s"), TEXT, TEXT
)
PLAIN = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), TEXT, TEXT)


def put(context: Any, record: Any) -> None:
    """Put the record into the store, in the format that it has."""
    store = context.state_store("s")
    getattr(store, "put_value", store.put)(record.key, record.value)


def expiring(at_ms: int | None) -> Headers:
    return Headers([("other", b"1")] if at_ms is None else [("other", b"1"), (EXPIRY_HEADER, expiry_value(at_ms))])


def record(key: str, expires_ms: int | None = None) -> SourceFields:
    return ("in", 0, 0, 0, key.encode(), b"v", expiring(expires_ms).to_bytes())


class SnapshotBatches(TaskBatches):
    """Makes a snapshot of each batch, and waits for it."""

    def _state(self) -> ShardedState:
        options = RecoveryOptions(snapshot_every_deltas=1, snapshot_budget_ms=60_000, retained_versions=1)
        return replace(super()._state(), recovery=options)


def living(batches: TaskBatches, now_ms: int) -> list[str]:
    def keys(store: Any) -> list[str]:
        found = [key for key, _ in store.all()]
        assert found == [key for key in "abcd" if store.get(key) is not None]
        return found

    return batches.look("s", keys, now_ms=now_ms)  # type: ignore[no-any-return]


@pytest.mark.parametrize("builder", [WITH_HEADERS, PLAIN, WITH_HEADERS.with_caching_enabled()])
@pytest.mark.parametrize("kind", [TaskBatches, SnapshotBatches])
def test_b16_an_expiry_header_is_honoured_at_read_at_compaction_and_at_restore(
    builder: Any, kind: Callable[..., TaskBatches], tmp_path: Path
) -> None:
    batches = kind(tmp_path, chain(put, builder.with_expiry_header()))
    batches.run(record("a", 100), record("b", 200), record("c"), now_ms=0)
    assert living(batches, 99) == ["a", "b", "c"]
    assert living(batches, 100) == ["b", "c"]
    assert [key for key, _ in batches.content("s")] == [b"a", b"b", b"c"], "reads delete nothing"
    wait_for_uploads()
    batches.lose_disk()
    assert living(batches, 100) == ["b", "c"]
    batches.run(record("d"), now_ms=150)
    assert [change.key for change in batches.changelogs["s"] if change.value is None] == [b"a"]
    wait_for_uploads()
    batches.lose_disk()
    assert [key for key, _ in batches.content("s")] == [b"b", b"c", b"d"], "gone after compaction and restore"
    assert living(batches, 199) == ["b", "c", "d"]
    assert living(batches, 200) == ["c", "d"]
    batches.run(now_ms=10**9)
    assert [key for key, _ in batches.content("s")] == [b"c", b"d"]
    assert batches.content("s-expiry") == []


def test_b16_a_put_without_the_header_takes_the_expiry_away(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, chain(put, WITH_HEADERS.with_expiry_header()))
    batches.run(record("a", 100), record("b", 100), now_ms=0)
    batches.run(record("a"), record("b", 300), now_ms=50)
    assert living(batches, 299) == ["a", "b"]
    assert living(batches, 300) == ["a"]


def test_b16_what_comes_late_is_hidden_at_once_and_deleted_at_the_end_of_its_batch(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, chain(put, WITH_HEADERS.with_expiry_header()))
    batches.run(record("a", 100), record("b"), now_ms=101)
    assert [key for key, _ in batches.content("s")] == [b"b"]


def test_b16_of_header_and_time_to_live_the_earlier_counts(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, chain(put, WITH_HEADERS.with_ttl(150).with_expiry_header()))
    batches.run(record("a", 100), record("b", 200), record("c"), now_ms=0)
    assert living(batches, 100) == ["b", "c"]
    assert living(batches, 149) == ["b", "c"]
    assert living(batches, 150) == []


def test_b16_by_stream_time(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, chain(put, WITH_HEADERS.with_expiry_header(clock="event")))
    batches.run(record("a", 100), now_ms=10**9)
    assert living(batches, 10**9) == ["a"]
    batches.run(("in", 0, 0, 100, b"b", b"v", b""))
    assert living(batches, 0) == ["b"]


def test_b16_a_malformed_header_lets_its_entry_live_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = TaskBatches(tmp_path, chain(put, WITH_HEADERS.with_expiry_header("until")))
    headers = Headers([("until", b"next week")]).to_bytes()
    batches.run(("in", 0, 0, 0, b"a", b"v", headers), ("in", 0, 0, 0, b"b", b"v", headers))
    assert living(batches, 2**62) == ["a", "b"]
    (said,) = [record.getMessage() for record in caplog.records if "expire" in record.getMessage()]
    assert said.startswith("store s: an entry does not expire by its header 'until': expiry header: its 9 bytes are no")


def test_b16_a_global_store_has_no_expiry_header() -> None:
    with pytest.raises(TopologyError, match="global store 's' can't have a ttl"):
        chain().add_global_store(
            PLAIN.with_expiry_header(), "g", "t", "fill", Processor, key_serde=TEXT, value_serde=TEXT
        )


def test_b16_the_data_source_leaves_out_what_has_expired_at_a_time(tmp_path: Path) -> None:
    topology = chain(put, WITH_HEADERS.with_expiry_header())
    batches = TaskBatches(tmp_path, topology)
    batches.run(record("a", 100), record("b", 200), record("c"))
    metadata = StateMetadata("state-1", 1, "key", (0,), topology.store_specs(), topology.to_json())
    agree_on_metadata(batches.location, metadata)

    def keys(live_at_ms: int | None) -> list[bytes]:
        scan = StoreScan(batches.location, metadata, WITH_HEADERS.spec, live_at_ms=live_at_ms)
        return [key for rows in scan.read(batches.pointer) for key in rows.column("key").to_pylist()]

    assert sorted(keys(None)) == [b"a", b"b", b"c"]
    assert keys(100) == [b"b", b"c"]
    options = {"path": str(batches.location), "store": "s-expiry", "liveAtMs": "5"}
    with pytest.raises(
        DataSourceOptionError, match=r"'liveAtMs' .* can't be told \(store 's-expiry' has no time to live"
    ):
        HeaderStateDataSource(options).reader(StructType())


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task directory of Kafka Streams whose store has what expires at 100 and 200, and never."""
    topology = chain(put, WITH_HEADERS.with_expiry_header())
    with TopologyTestDriver(topology, state_dir=tmp_path / "streams") as driver:
        topic = input_of(driver)
        for key, at_ms in {"a": 100, "b": 200, "c": None}.items():
            topic.pipe_input(TestRecord(key, "v", headers=expiring(at_ms), timestamp_ms=5))
    return tmp_path / "streams" / "test-application" / "0_0"


def test_b16_a_test_driver_goes_on_with_it(task: Path) -> None:
    topology = chain(put, WITH_HEADERS.with_expiry_header())
    with TopologyTestDriver(topology, state_dir=task.parents[1]) as driver:
        for at_ms, deleted, left in ((100, b"a", ["b", "c"]), (200, b"b", ["c"])):
            driver.advance_wall_clock_time(100)
            assert [(key, value) for key, value, *_ in changelog_of(driver, "s")] == [(deleted, None)]
            driver.restart()
            store = driver.get_state_store("s")
            assert store is not None
            assert [key for key, _ in store.all()] == left, at_ms


def test_b16_the_tools_leave_out_what_has_expired_at_a_time(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = Tools(capsys)
    of_store = ["--json", "--store", "s", task]

    def keys(*options: Any) -> list[str]:
        return [bytes.fromhex(entry["key"]).decode() for entry in tools("scan", *options).document["entries"]]

    assert keys(*of_store) == ["a", "b", "c"]
    assert keys("--live-at", "99", *of_store) == ["a", "b", "c"]
    assert keys("--live-at", "100", *of_store) == ["b", "c"]
    assert keys("--live-at", "200", "--prefix", "c", *of_store) == ["c"]
    assert tools("get", "--live-at", "99", "--store", "s", task, "a").code == 0
    assert tools("get", "--live-at", "100", "--store", "s", task, "a").code == 1
    refused = tools("scan", "--live-at", "100", "--store", "s-expiry", "--kind", "kv", task)
    assert refused.code == 2
    assert "has no store 's-expiry-expiry'" in refused.err
    assert tools("verify", task).code in (0, 2)


def test_b16_a_directory_becomes_a_state_with_what_says_when_it_expires(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = Tools(capsys)
    location = tmp_path / "location"
    moved = tools("migrate", task.parent, location, "--layout", "location")
    assert moved.code == 0, moved.err
    scan = ["scan", "--json", "--store", "s", location]
    for time_ms, wanted in ((99, "abc"), (100, "bc"), (200, "c")):
        entries = tools(*scan, "--live-at", str(time_ms)).document["entries"]
        assert "".join(bytes.fromhex(entry["key"]).decode() for entry in entries) == wanted
