"""Restarts of the test driver: from the disk, from changelogs, as a new format, and on what others left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore import (
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
)
from statestore.dsl import JoinWindows, StreamJoined, StreamsBuilder
from statestore.errors import StoreFormatError, TopologyError
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import (
    HEADERS,
    KINDS,
    NONE,
    RECORDS,
    SEGMENT_MS,
    TEXT,
    UPGRADES,
    allowing,
    chain,
    changelog_of,
    expected,
    held,
    input_of,
    output_of,
    storing,
)

STEPS = [(older, newer) for older, newers in UPGRADES.items() for newer in newers]


@pytest.mark.parametrize("restore_from", ["disk", "changelog"])
@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize("name", KINDS)
def test_a_store_has_after_a_restart_what_it_had(name: str, in_memory: bool, restore_from: Any) -> None:
    with TopologyTestDriver(storing(name, in_memory=in_memory)) as driver:
        topic = input_of(driver)
        topic.pipe_record_list(RECORDS)
        assert held(KINDS[name], driver.get_state_store("s")) == expected(name)
        before = driver.get_state_store("s")
        driver.restart(restore_from=restore_from)
        store = driver.get_state_store("s")
        assert store is not None
        assert store is not before
        assert held(KINDS[name], store) == expected(name)
        # And goes on: the changelog is one, what was written stays to be read, offsets and stream time go on.
        topic.pipe_input("d", "5", timestamp_ms=41_000)
        assert len(changelog_of(driver, "s")) == 6
        assert output_of(driver).get_queue_size() == 6
        driver.restart(restore_from=restore_from)
        assert KINDS[name].get(driver.get_state_store("s"), "d", 41_000) == KINDS[name].held("5", 41_000, NONE)


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
def test_what_is_not_logged_is_lost_with_the_local_state_only(in_memory: bool) -> None:
    for name in ("headers-kv", "window"):
        topology = storing(name, in_memory=in_memory, change=lambda builder: builder.with_logging_disabled())
        with TopologyTestDriver(topology) as driver:
            input_of(driver).pipe_input("k", "v", timestamp_ms=1_000)
            found = []
            for restore_from in ("disk", "changelog"):
                driver.restart(restore_from=restore_from)  # type: ignore[arg-type]
                found.append(KINDS[name].get(driver.get_state_store("s"), "k", 1_000) is not None)
            assert found == [not in_memory, False]


def test_a_store_that_lost_what_it_held_has_lost_its_time_too() -> None:
    topology = storing("window", change=lambda builder: builder.with_logging_disabled())
    with TopologyTestDriver(topology) as driver:
        topic = input_of(driver)
        topic.pipe_input("k", "new", timestamp_ms=10 * SEGMENT_MS)
        driver.restart(restore_from="changelog")
        topic.pipe_input("k", "early", timestamp_ms=1_000)
        assert KINDS["window"].get(driver.get_state_store("s"), "k", 1_000) == "early"


def test_what_has_expired_is_not_restored(tmp_path: Path) -> None:
    with TopologyTestDriver(storing("headers-window"), state_dir=tmp_path) as driver:
        for time_ms in (1_000, 10 * SEGMENT_MS):
            input_of(driver).pipe_input("k", "v", timestamp_ms=time_ms)
        segments = tmp_path / "test-application" / "0_0" / "s"
        assert [path.name for path in segments.iterdir()] == [f"s.{10 * SEGMENT_MS}"]
        driver.restart(restore_from="changelog")
        assert [path.name for path in segments.iterdir()] == [f"s.{10 * SEGMENT_MS}"]
        assert len(changelog_of(driver, "s")) == 2


@pytest.mark.parametrize("restore_from", ["disk", "changelog"])
@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize("name", ["window", "session", "versioned"])
def test_the_time_of_a_store_goes_on(name: str, in_memory: bool, restore_from: Any) -> None:
    # In Kafka it begins anew with a restart, so that what is too late is taken.
    with TopologyTestDriver(storing(name, in_memory=in_memory)) as driver:
        topic = input_of(driver)
        topic.pipe_input("k", "new", timestamp_ms=10 * SEGMENT_MS)
        driver.restart(restore_from=restore_from)
        topic.pipe_input("k", "late", timestamp_ms=1_000)
        store = driver.get_state_store("s")
        assert store is not None
        assert store.stream_time_ms is not None
        assert store.stream_time_ms >= 10 * SEGMENT_MS
        late = store.get("k", 1_000) if name == "versioned" else KINDS[name].get(store, "k", 1_000)  # type: ignore[attr-defined]
        assert late is None
        assert driver.stream_time_ms == 10 * SEGMENT_MS


@pytest.mark.parametrize("restore_from", ["disk", "changelog"])
@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize(("older", "newer"), STEPS, ids=lambda name: name)
def test_giving_a_store_headers_takes_one_restart(older: str, newer: str, in_memory: bool, restore_from: Any) -> None:
    with TopologyTestDriver(storing(older, in_memory=in_memory)) as driver:
        topic = input_of(driver)
        topic.pipe_input("old", "1", timestamp_ms=10_000, headers=HEADERS)
        driver.restart(storing(newer, in_memory=in_memory, change=allowing(older, newer)), restore_from=restore_from)
        time_ms = -1 if older in ("kv", "window") else 10_000
        store = driver.get_state_store("s")
        before = KINDS[newer].held("1", 10_000 if older == "versioned" else time_ms, NONE)
        assert KINDS[newer].get(store, "old", 10_000) == before
        topic.pipe_input("new", "2", timestamp_ms=11_000, headers=HEADERS)
        after = KINDS[newer].held("2", 11_000, HEADERS)
        for how in ("disk", "changelog"):
            assert KINDS[newer].get(driver.get_state_store("s"), "new", 11_000) == after
            assert KINDS[newer].get(driver.get_state_store("s"), "old", 10_000) == before
            driver.restart(restore_from=how)  # type: ignore[arg-type]


@pytest.mark.parametrize("restore_from", ["disk", "changelog"])
@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize("kind", ["kv", "window"])
def test_plain_values_get_headers_in_two_steps(kind: str, in_memory: bool, restore_from: Any) -> None:
    with TopologyTestDriver(storing(kind, in_memory=in_memory)) as driver:
        input_of(driver).pipe_input("old", "1", timestamp_ms=10_000)
        headed = storing(f"headers-{kind}", in_memory=in_memory)
        with pytest.raises(StoreFormatError, match="through_timestamped") as raised:
            driver.restart(headed, restore_from=restore_from)
        for way in (
            "timestamped builder",
            "with_upgrade_through_timestamped()",
            "migrate --to headers",
            "timestamp -1",
        ):
            assert way in str(raised.value)
        driver.restart(storing(kind, in_memory=in_memory))
        assert KINDS[kind].get(driver.get_state_store("s"), "old", 10_000) == "1", "a refusal has changed nothing"
        driver.restart(storing(f"ts-{kind}", in_memory=in_memory))
        store = driver.get_state_store("s")
        assert store is not None
        store.finish_upgrade()
        driver.restart(headed)
        found = KINDS[f"headers-{kind}"].get(driver.get_state_store("s"), "old", 10_000)
        assert found == ValueTimestampHeaders("1", -1, NONE)


def test_a_value_of_unknown_time_is_forwarded_and_put_back() -> None:
    def pass_on(context: ProcessorContext, record: Record[Any, Any]) -> None:
        store = context.state_store("s")
        held = store.get(record.key)
        store.put_value(record.key, f"{held.value}!", timestamp_ms=held.timestamp_ms, headers=held.headers)
        sent = Record(record.key, held.value, held.timestamp_ms, held.headers)
        context.forward(sent)
        assert sent.timestamp_ms == -1, "the processor's own record stays what it is"
        assert context.current_timestamp_ms == record.timestamp_ms

    with TopologyTestDriver(storing("kv")) as driver:
        input_of(driver).pipe_input("old", "1", timestamp_ms=10_000)
        output_of(driver).read_record()
        driver.restart(chain(pass_on, KINDS["headers-kv"].persistent("s").with_upgrade_through_timestamped()))
        input_of(driver).pipe_input("old", "2", timestamp_ms=20_000, headers=HEADERS)
        assert output_of(driver).read_record() == TestRecord("old", "1", 20_000)
        assert driver.get_state_store("s").get("old") == ValueTimestampHeaders("1!", 20_000, NONE)


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize(("older", "newer"), STEPS, ids=lambda name: name)
def test_going_back_is_refused_unless_the_local_state_is_thrown_away(older: str, newer: str, in_memory: bool) -> None:
    with TopologyTestDriver(storing(newer, in_memory=in_memory)) as driver:
        topic = input_of(driver)
        topic.pipe_input("k", "1", timestamp_ms=10_000, headers=HEADERS)
        with pytest.raises(
            StoreFormatError, match=r"store 's(\.0)?': is recorded as.*`upgrade-tools downgrade .*--store s`"
        ):
            driver.restart(storing(older, in_memory=in_memory))
        driver.restart()
        assert KINDS[newer].get(driver.get_state_store("s"), "k", 10_000) == KINDS[newer].held("1", 10_000, HEADERS)
        # As the error says, and as in Kafka: what the older format has no room for is gone.
        driver.restart(storing(older, in_memory=in_memory), restore_from="changelog")
        assert KINDS[older].get(driver.get_state_store("s"), "k", 10_000) == KINDS[older].held("1", 10_000, NONE)


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
def test_another_kind_of_store_is_refused(in_memory: bool) -> None:
    with TopologyTestDriver(storing("kv", in_memory=in_memory)) as driver:
        input_of(driver).pipe_input("k", "v", timestamp_ms=1)
        with pytest.raises(StoreFormatError, match="key-value store"):
            driver.restart(storing("window", in_memory=in_memory))
        with pytest.raises(StoreFormatError, match="key-value store"):
            driver.restart(storing("versioned", in_memory=in_memory), restore_from="changelog")
        driver.restart(storing("kv", in_memory=in_memory), restore_from="changelog")
        assert KINDS["kv"].get(driver.get_state_store("s"), "k", 1) == "v"


def test_a_topology_that_is_wrong_changes_nothing() -> None:
    with TopologyTestDriver(storing("kv")) as driver:
        input_of(driver).pipe_input("k", "v")
        with pytest.raises(TopologyError):
            driver.restart(Topology())
        with pytest.raises(ValueError, match="restore_from"):
            driver.restart(restore_from="backup")  # type: ignore[arg-type]
        input_of(driver).pipe_input("l", "w")
        store = driver.get_key_value_store("s")
        assert store is not None
        assert list(store.all()) == [("k", "v"), ("l", "w")]


def test_clocks_schedules_offsets_and_outputs_go_on() -> None:
    fired: list[tuple[str, int]] = []
    offsets: list[int] = []

    def init(context: ProcessorContext) -> None:
        for kind in PunctuationType:
            context.schedule(100, kind, lambda now_ms, kind=kind: fired.append((kind.name[:4], now_ms)))

    def note(context: ProcessorContext, record: Record[Any, Any]) -> None:
        assert context.record_metadata is not None
        offsets.append(context.record_metadata.offset)
        context.forward(record)

    with TopologyTestDriver(chain(note, init=init), initial_wall_clock_time_ms=1_000) as driver:
        topic = input_of(driver, start_timestamp_ms=50)
        topic.pipe_input("k", "1")
        driver.advance_wall_clock_time(99)
        for restore_from in ("disk", "changelog"):
            driver.restart(restore_from=restore_from)  # type: ignore[arg-type]
            topic.pipe_input("k", "2")
            assert (driver.wall_clock_time_ms, driver.stream_time_ms) == (1_099, 50)
        driver.advance_wall_clock_time(1)
        topic.pipe_input("k", "3", timestamp_ms=100)
        # A topology that schedules anew at every start would have fired at 50 three times, and at 1100 not at all.
        assert fired == [("STRE", 50), ("WALL", 1_100), ("STRE", 100)]
        assert offsets == [0, 1, 2, 3]
        assert output_of(driver).read_values_to_list() == ["1", "2", "2", "3"]


def test_a_cancelled_schedule_stays_cancelled() -> None:
    fired: list[int] = []

    def init(context: ProcessorContext) -> None:
        schedule = context.schedule(
            10, PunctuationType.WALL_CLOCK_TIME, lambda now_ms: (fired.append(now_ms), schedule.cancel())
        )  # type: ignore[func-returns-value]

    with TopologyTestDriver(chain(init=init)) as driver:
        driver.advance_wall_clock_time(10)
        driver.restart()
        driver.advance_wall_clock_time(100)
        assert fired == [10]


def test_several_stores_are_upgraded_in_one_restart() -> None:
    def topology(*, headers: bool) -> Topology:
        if headers:
            builder: Any = Stores.timestamped_key_value_store_with_headers_builder(
                Stores.persistent_timestamped_key_value_store_with_headers("a"), TEXT, TEXT
            )
        else:
            builder = Stores.timestamped_key_value_store_builder(
                Stores.persistent_timestamped_key_value_store("a"), TEXT, TEXT
            )

        def put(context: ProcessorContext, record: Record[Any, Any]) -> None:
            if headers:
                value: Any = ValueTimestampHeaders(record.value, record.timestamp_ms, record.headers)
            else:
                value = ValueAndTimestamp(record.value, record.timestamp_ms)
            context.state_store("a").put(record.key, value)
            context.state_store("m").put(record.key, record.value)

        return chain(put, builder, KINDS["kv"].in_memory("m"))

    with TopologyTestDriver(topology(headers=False)) as driver:
        topic = input_of(driver)
        topic.pipe_key_value_list([(f"k{number}", "v") for number in range(1_000)], 1)
        driver.restart(topology(headers=True))
        topic.pipe_input("k1", "new", timestamp_ms=2, headers=HEADERS)
        store, other = driver.get_timestamped_key_value_store_with_headers("a"), driver.get_key_value_store("m")
        assert store is not None
        assert other is not None
        assert store.upgrade_progress().entries_left > 0
        found = dict(store.all())
        assert len(found) == 1_000
        assert found.pop("k1") == ValueTimestampHeaders("new", 2, HEADERS)
        assert set(map(repr, found.values())) == {repr(ValueTimestampHeaders("v", 1, NONE))}
        assert len(list(other.all())) == 1_000
        assert store.finish_upgrade().is_finished


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
def test_what_was_restored_is_measured(in_memory: bool) -> None:
    topology = storing("headers-kv", in_memory=in_memory, change=lambda builder: builder.with_metrics_enabled())
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_record_list(RECORDS)
        assert "s/restore-total" not in driver.metrics(), "there was nothing to restore"
        driver.restart(restore_from="changelog")
        assert driver.metrics()["s/restore-total"] == len(RECORDS)
        driver.restart()
        assert driver.metrics().get("s/restore-total", 0) == (len(RECORDS) if in_memory else 0)


def test_a_stores_metrics_go_by_the_drivers_clocks() -> None:
    topology = storing("headers-kv", change=lambda builder: builder.with_metrics_enabled())
    with TopologyTestDriver(topology, initial_wall_clock_time_ms=5_000) as driver:
        input_of(driver).pipe_input("k", "v", timestamp_ms=3_000)
        store = driver.get_key_value_store("s")
        assert store is not None
        assert driver.metrics()["s/record-e2e-latency-avg"] == 2_000
        entries = driver.get_state_store("s").all()
        driver.advance_wall_clock_time(10)
        assert driver.metrics()["s/oldest-iterator-open-since-ms"] == 5_000
        entries.close()
        assert driver.metrics()["s/iterator-duration-avg"] == 10_000_000


@pytest.mark.parametrize("restore_from", ["disk", "changelog"])
def test_records_without_a_value_do_not_take_the_store_of_a_join_on(restore_from: Any) -> None:
    builder, serdes = StreamsBuilder(), {"key_serde": Serdes.string(), "value_serde": Serdes.string()}
    left, right = (builder.stream(topic, **serdes) for topic in ("left", "right"))
    within, stored = JoinWindows.of_time_difference_and_grace(5, 1), StreamJoined().with_stores_in_memory()
    left.join(right, "{}{}".format, within, stored, value_serde=Serdes.string()).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        into = {topic: driver.create_input_topic(topic, **serdes) for topic in ("left", "right")}
        into["right"].pipe_input("k", "r", timestamp_ms=0)
        into["right"].pipe_input("k", None, timestamp_ms=100)
        driver.restart(restore_from=restore_from)
        into["left"].pipe_input("k", "l", timestamp_ms=0)
        assert driver.create_output_topic("out", **serdes).read_values_to_list() == ["lr"]
