"""A time to live through tasks: clocks, batches that fail, restarts, lost disks, tombstones for what expired."""

from pathlib import Path
from typing import Any

import pytest

from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.errors import TopologyError
from statestore.headers.topic_columns import SourceFields
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from tests.support.spark.task_batches import TaskBatches

TTL_MS = 100


class Remember(Processor):
    """Puts each record's value, and forwards what was there before."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store("s")

    def process(self, record: Record[str, str]) -> None:
        seen = self.store.get(record.key)
        if record.value == "?":
            found = sorted(key for key, _ in self.store.all())
            self.context.forward(record.with_value([seen and seen.value, found]))
        else:
            self.store.put(record.key, ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers))


def a_topology(clock: str | None = "processing", *, persistent: bool = True, cached: bool = False) -> Topology:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_processor("p", Remember, ["in"])
    supplier = (
        Stores.persistent_timestamped_key_value_store_with_headers("s")
        if persistent
        else Stores.in_memory_key_value_store("s")
    )
    builder = Stores.timestamped_key_value_store_with_headers_builder(supplier, Serdes.string(), Serdes.string())
    builder = builder.with_caching_enabled() if cached else builder
    topology.add_state_store(builder if clock is None else builder.with_ttl(TTL_MS, clock), "p")
    topology.add_sink("out", "out", ["p"], value_serde=Serdes.json())
    return topology


def record(key: str, value: str = "?", timestamp_ms: int = 0) -> SourceFields:
    return ("in", 0, 0, timestamp_ms, key.encode(), value.encode(), b"")


def seen(batches: TaskBatches, key: str, *, now_ms: int = 0, timestamp_ms: int = 0) -> Any:
    (output,) = batches.run(record(key, timestamp_ms=timestamp_ms), now_ms=now_ms, commits=False)
    return Serdes.json().deserialize(output[3])


@pytest.fixture(params=["rocksdb", "rocksdb, cached", "memory"])
def made(request: pytest.FixtureRequest) -> dict[str, bool]:
    return {"persistent": "rocksdb" in request.param, "cached": "cached" in request.param}


def test_by_the_wall_clock(tmp_path: Path, made: dict[str, bool]) -> None:
    batches = TaskBatches(tmp_path, a_topology(**made))
    batches.run(record("a", "1", 7_000), record("b", "1"), now_ms=1_000)
    batches.run(record("b", "2"), now_ms=1_050)
    assert seen(batches, "a", now_ms=1_099) == ["1", ["a", "b"]]
    assert seen(batches, "a", now_ms=1_100, timestamp_ms=10**9) == [None, ["b"]]
    assert seen(batches, "b", now_ms=1_149) == ["2", ["b"]]
    assert seen(batches, "b", now_ms=1_150) == [None, []]


def test_by_stream_time(tmp_path: Path, made: dict[str, bool]) -> None:
    batches = TaskBatches(tmp_path, a_topology("event", **made))
    batches.run(record("a", "1", 1_000), record("late", "1", 500), now_ms=10**9)
    assert seen(batches, "late", timestamp_ms=1_099, now_ms=2 * 10**9) == ["1", ["a", "late"]]
    assert seen(batches, "late", timestamp_ms=1_100) == [None, []]


def test_what_expired_is_deleted_with_tombstones_in_the_changelog(tmp_path: Path, made: dict[str, bool]) -> None:
    batches = TaskBatches(tmp_path, a_topology(**made))
    batches.run(record("a", "1"), record("b", "1"), now_ms=0)
    batches.run(record("b", "2"), now_ms=TTL_MS)
    assert [change[:2] for change in batches.changelogs["s"] if change[1] is None] == [(b"a", None)]
    assert [key for key, _ in batches.content("s")] == [b"b"]
    assert len(batches.content("s-expiry")) == 2
    batches.run(now_ms=10 * TTL_MS)
    assert batches.content("s") == []
    assert batches.content("s-expiry") == []


def test_restarts_and_lost_disks_change_nothing(tmp_path: Path, made: dict[str, bool]) -> None:
    batches = TaskBatches(tmp_path, a_topology(**made))
    batches.run(record("a", "1"), now_ms=0)
    batches.run(record("b", "1"), now_ms=60)
    batches.lose_disk()
    assert seen(batches, "a", now_ms=99) == ["1", ["a", "b"]]
    batches.lose_disk()
    assert seen(batches, "a", now_ms=100) == [None, ["b"]]
    batches.run(now_ms=100)
    batches.lose_disk()
    assert [key for key, _ in batches.content("s")] == [b"b"]
    assert seen(batches, "b", now_ms=159) == ["1", ["b"]]
    assert seen(batches, "b", now_ms=160) == [None, []]


def test_a_batch_that_fails_renews_and_deletes_nothing(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, a_topology())
    batches.run(record("a", "1"), now_ms=0)
    batches.run(record("a", "2"), now_ms=50, commits=False)
    batches.run(now_ms=100, commits=False)
    assert seen(batches, "a", now_ms=99) == ["1", ["a"]]
    assert seen(batches, "a", now_ms=100) == [None, []]


def test_a_store_is_given_a_time_to_live_when_it_has_entries(tmp_path: Path) -> None:
    before, after = a_topology(None), a_topology()
    batches = TaskBatches(tmp_path, before)
    batches.run(record("old", "1"), record("renewed", "1"), now_ms=0)
    stored = batches.content("s")

    def metadata(topology: Topology) -> StateMetadata:
        return StateMetadata("state-1", 1, "key", (0,), topology.store_specs(), topology.to_json())

    location = DurableLocation(tmp_path / "metadata")
    agree_on_metadata(location, metadata(before))
    accepted = agree_on_metadata(location, metadata(after), accept_topology_change=True)
    assert [spec.name for spec in accepted.stores] == ["s", "s-expiry"]

    batches.topology = after
    assert batches.content("s") == stored
    batches.run(record("renewed", "2"), now_ms=10)
    assert seen(batches, "old", now_ms=10**9) == ["1", ["old"]]


def test_what_is_recorded_of_the_store_itself_stays_as_it_is() -> None:
    with_ttl, without = a_topology(), a_topology(None)
    assert with_ttl.to_json() == without.to_json()
    assert set(without.store_specs()) < set(with_ttl.store_specs())
    with_ttl.validate()


def test_names_that_collide_and_global_stores_are_refused() -> None:
    plain = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("s-expiry"), Serdes.bytes(), Serdes.bytes()
    )
    with pytest.raises(TopologyError, match="already is a state store 's-expiry'"):
        a_topology().add_state_store(plain, "p")
    other = Topology()
    other.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    other.add_processor("p", Remember, ["in"])
    other.add_state_store(plain, "p")
    clashing = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), Serdes.bytes(), Serdes.bytes())
    with pytest.raises(TopologyError, match="already is a state store 's-expiry', which 's' needs"):
        other.add_state_store(clashing.with_ttl(5), "p")
    with pytest.raises(TopologyError, match="global store 's' can't have a ttl"):
        Topology().add_global_store(
            clashing.with_ttl(5), "g", "t", "fill", Remember, key_serde=Serdes.bytes(), value_serde=Serdes.bytes()
        )


def test_a_builder_that_two_processors_share_is_added_once() -> None:
    topology = a_topology()
    topology.add_processor("q", Remember, ["in"])
    topology.add_state_store(topology.store_builders["s"], "q")
    assert topology.processors["q"].stores == ["s"]
