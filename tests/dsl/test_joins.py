"""Joins of streams and tables: headers, what waits over batches and restarts, and what is refused.

That they join as Kafka Streams does is in test_against_kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, Serde, Serdes
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.join_serdes import (
    BUFFERED_RECORDS,
    BufferedKey,
    WaitingKey,
    buffered_key_serde,
    waiting_key_serde,
)
from statestore.dsl.joins.joined import Joined, StreamJoined
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windows import JoinWindows, TimeWindows
from statestore.errors import StateStoreError, TopologyError
from statestore.format.values.buffered_record import BufferedRecord, decode_buffered_record, encode_buffered_record
from statestore.format.values.waiting_values import WaitingValue, decode_waiting_values, encode_waiting_values
from statestore.recovery.making.placement import record_keys
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.java.program import PROGRAMS, run_java_program

TEXT = Serdes.string()
TEXTS: dict[str, Serde[Any]] = {"key_serde": TEXT, "value_serde": TEXT}
WITHIN_5 = JoinWindows.of_time_difference_and_grace(5, 3)
GOLDEN = json.loads(Path(__file__).parents[1].joinpath("golden", "joins.json").read_text(encoding="utf-8"))
LEFT, RIGHT, SAME = ("trace", b"left"), ("trace", b"right"), ("app", b"same")

Join = Callable[[StreamsBuilder], Any]


def pair(left: object, right: object) -> str:
    return f"{left}&{right}"


class Joining:
    """A driver of a program that reads "left" and "right", and writes "out"."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self.inputs = {topic: driver.create_input_topic(topic, **TEXTS) for topic in ("left", "right")}
        self._output = driver.create_output_topic("out", **TEXTS)

    def __call__(
        self, topic: str, value: str | None, time_ms: int, *headers: tuple[str, bytes], key: str | None = "k"
    ) -> list[Any]:
        """Pipe a record, and return what it led to."""
        self.inputs[topic].pipe_record_list([TestRecord(key, value, time_ms, headers)])
        return self.read()

    def batch(self, topic: str, *values_and_times: tuple[str | None, int]) -> list[Any]:
        self.inputs[topic].pipe_micro_batch([TestRecord("k", value, time_ms) for value, time_ms in values_and_times])
        return self.read()

    def read(self) -> list[Any]:
        return [
            (record.value, record.timestamp_ms, *((header.key, header.value) for header in record.headers))
            for record in self._output.read_records_to_list()
        ]


@contextmanager
def joining(join: Join) -> Iterator[Joining]:
    builder = StreamsBuilder()
    joined = join(builder)
    (joined.to_stream() if isinstance(joined, KTable) else joined).to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        yield Joining(driver)


def streams(how: str, windows: JoinWindows = WITHIN_5, **options: Any) -> Join:
    def join(builder: StreamsBuilder) -> KStream:
        left, right = builder.stream("left", **TEXTS), builder.stream("right", **TEXTS)
        joined: KStream = getattr(left, how)(right, pair, windows, **options)
        return joined

    return join


def with_table(how: str, stored: Materialized | None = None, joined: Joined | None = None, **options: Any) -> Join:
    def join(builder: StreamsBuilder) -> KStream:
        table = builder.table("right", **TEXTS, materialized=stored)
        made: KStream = getattr(builder.stream("left", **TEXTS), how)(table, pair, joined, **options)
        return made

    return join


def tables(how: str, **options: Any) -> Join:
    def join(builder: StreamsBuilder) -> KTable:
        joined: KTable = getattr(builder.table("left", **TEXTS), how)(builder.table("right", **TEXTS), pair, **options)
        return joined

    return join


# ---- Headers

BOTH = {
    "latest": [RIGHT, SAME],
    "first": [LEFT, SAME],
    "merge_distinct": [LEFT, SAME, RIGHT],
    "append": [LEFT, SAME, RIGHT, SAME],
    "none": [],
}


@pytest.mark.parametrize("policy", BOTH)
def test_headers_of_two_streams(policy: str) -> None:
    with joining(streams("join", headers=policy)) as pipe:
        assert pipe("left", "a", 1, LEFT, SAME) == []
        assert pipe("right", "b", 2, RIGHT, SAME) == [("a&b", 2, *BOTH[policy])]


@pytest.mark.parametrize("policy", ["merge_distinct", "append"])
def test_the_left_side_comes_first_whichever_came_last(policy: str) -> None:
    with joining(streams("join", headers=policy)) as pipe:
        pipe("right", "b", 2, RIGHT)
        assert pipe("left", "a", 1, LEFT) == [("a&b", 2, LEFT, RIGHT)]


def test_a_function_gets_the_headers_of_left_and_right() -> None:
    def named(left: Headers, right: Headers) -> list[tuple[str, bytes | None]]:
        return [*(("left", held.value) for held in left), *(("right", held.value) for held in right)]

    with joining(streams("outer_join", headers=named)) as pipe:
        pipe("right", "b", 2, RIGHT)
        assert pipe("left", "a", 1, LEFT) == [("a&b", 2, ("left", b"left"), ("right", b"right"))]
        pipe("right", "c", 50, RIGHT)
        assert pipe("right", "d", 90) == [("None&c", 50, ("right", b"right"))]


def test_what_headers_there_is_no_room_for_is_counted() -> None:
    with joining(streams("join", headers=HeaderPolicy.of("append").capped(max_count=1), name="j")) as pipe:
        pipe("left", "a", 1, LEFT, SAME)
        assert pipe("right", "b", 2, RIGHT) == [("a&b", 2, LEFT)]
        assert pipe.driver.metrics()["j-other-join.dropped_headers"] == 2


@pytest.mark.parametrize(("policy", "kept"), [("latest", [LEFT]), ("first", [LEFT]), ("append", [LEFT]), ("none", [])])
def test_a_record_that_nothing_matched_has_its_own_headers(policy: str, kept: list[Any]) -> None:
    """In Kafka, those of the record that made its window close."""
    with joining(streams("left_join", headers=policy)) as pipe:
        assert pipe("left", "a", 1, LEFT) == []
        assert pipe("left", "b", 1, SAME) == []
        own = [SAME] if kept else []
        assert pipe("right", "c", 10, RIGHT) == [("a&None", 1, *kept), ("b&None", 1, *own)]


@pytest.mark.parametrize("policy", BOTH)
def test_headers_of_a_stream_and_a_table(policy: str) -> None:
    """The stream's record comes last in any case."""
    left_latest = {**BOTH, "latest": BOTH["first"], "first": BOTH["latest"]}
    with joining(with_table("join", headers=policy)) as pipe:
        pipe("right", "b", 9, RIGHT, SAME)
        assert pipe("left", "a", 1, LEFT, SAME) == [("a&b", 1, *left_latest[policy])]


def test_headers_of_two_tables_and_of_who_looks_into_their_join() -> None:
    def join(builder: StreamsBuilder) -> KStream:
        left, right = builder.table("left", **TEXTS), builder.table("right", **TEXTS)
        return builder.stream("in", **TEXTS).join(left.outer_join(right, pair), pair, headers="first")

    builder = StreamsBuilder()
    join(builder).to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        pipe = Joining(driver)
        pipe("left", "a", 3, LEFT)
        asking = driver.create_input_topic("in", **TEXTS)
        asking.pipe_input("k", "?", timestamp_ms=4)
        assert pipe.read() == [("?&a&None", 4, LEFT)]
        pipe("right", "b", 2, RIGHT)
        asking.pipe_input("k", "?", timestamp_ms=5)
        assert pipe.read() == [("?&a&b", 5, LEFT, RIGHT)]


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
def test_two_tables(how: str) -> None:
    with joining(tables(how, materialized=Materialized.as_("joined").or_serdes(TEXT, TEXT))) as pipe:
        assert pipe("left", "a", 3, LEFT) == ([] if how == "join" else [("a&None", 3, LEFT)])
        assert pipe("right", "b", 2, RIGHT) == [("a&b", 3, LEFT, RIGHT)]
        held = pipe.driver.get_all_state_stores()["joined"].get("k")  # type: ignore[attr-defined]
        assert (held.value, held.timestamp_ms, list(held.headers)) == ("a&b", 3, list(Headers([LEFT, RIGHT])))
        gone = {"join": None, "left_join": "a&None", "outer_join": "a&None"}[how]
        assert pipe("right", None, 4, SAME) == [(gone, 4, LEFT, SAME)]
        assert pipe("left", None, 5) == ([] if how == "join" else [(None, 5)])


# ---- What waits, over batches and restarts


@pytest.mark.parametrize("joined", [None, StreamJoined().with_stores_in_memory()], ids=["on disk", "in memory"])
def test_what_waits_of_streams_outlives_batches_and_restarts(joined: StreamJoined | None) -> None:
    with joining(streams("outer_join", joined=joined)) as pipe:
        assert pipe.batch("left", ("a", 1), ("b", 2), ("late", 0)) == []
        assert pipe.batch("right", ("c", 2)) == [("late&c", 2), ("a&c", 2), ("b&c", 2)]
        assert pipe("left", "d", 20) == []
        pipe.driver.restart()
        assert pipe("right", "e", 40) == [("d&None", 20)]
        pipe.driver.restart(restore_from="changelog")
        assert pipe("left", "f", 1) == [("f&None", 1)], "its window has closed: time went on before the restart"
        assert pipe("left", "g", 60) == [("None&e", 40)]


def test_headers_of_what_waits_outlive_a_restart_from_changelogs() -> None:
    with joining(streams("left_join")) as pipe:
        pipe("left", "a", 1, LEFT)
        pipe.driver.restart(restore_from="changelog")
        assert pipe("left", "b", 40) == [("a&None", 1, LEFT)]


def test_records_that_came_before_the_clock_was_known_are_sent_on() -> None:
    """The state of Kafka Streams, whose clock is lost: what waits is found by looking."""
    with joining(streams("left_join")) as pipe:
        pipe("left", "a", 1)
        store = next(name for name in pipe.driver.get_all_state_stores() if "OUTERSHARED" in name)
        logged = pipe.driver.create_output_topic(
            f"test-application-{store}-changelog", key_serde=Serdes.bytes(), value_serde=Serdes.bytes()
        ).read_records_to_list()
    builder = StreamsBuilder()
    streams("left_join")(builder).to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build(), changelogs={store: logged}) as driver:
        assert Joining(driver)("right", "b", 40) == [("a&None", 1)]


def test_records_wait_for_the_versions_of_their_time() -> None:
    versioned = Materialized.as_versioned("prices", 100)
    with joining(with_table("left_join", versioned, Joined().with_grace_period(10))) as pipe:
        assert pipe("right", "old", 5, RIGHT) == []
        assert pipe("left", "a", 20, LEFT) == []
        assert pipe("left", "b", 12) == []
        assert pipe("right", "new", 15) == []
        pipe.driver.restart()
        assert pipe("left", "late", 6) == [("late&old", 6, RIGHT)], "joined at once: time went on before the restart"
        assert pipe("left", "c", 31) == [("b&old", 12, RIGHT), ("a&new", 20, LEFT)]
        assert pipe("left", "nobody's", 3, key=None) == [("nobody's&None", 3)]
        assert pipe.batch("left", ("d", 33), ("e", 33), ("f", 44)) == [("c&new", 31), ("d&new", 33), ("e&new", 33)]


def test_versions_of_an_aggregate_are_joined_as_of_their_time() -> None:
    def join(builder: StreamsBuilder) -> KStream:
        versioned = Materialized.as_versioned("sums", 100)
        sums = builder.stream("right", **TEXTS).group_by_key().reduce(str.__add__, materialized=versioned)
        return builder.stream("left", **TEXTS).join(sums, pair, Joined().with_grace_period(10))

    with joining(join) as pipe:
        pipe("right", "a", 5, RIGHT)
        pipe("right", "b", 9, SAME)
        assert pipe.batch("left", ("x", 7), ("y", 9), ("z", 30)) == [("x&a", 7, RIGHT), ("y&ab", 9, SAME)]


def test_windows_have_no_versions() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(10)
    versioned = Materialized.as_versioned("counts", 100)
    builder.stream("left", **TEXTS).group_by_key().windowed_by(windows).count(materialized=versioned)
    with pytest.raises(TopologyError, match="be versioned"):
        builder.build()


def test_a_global_table_is_joined_by_any_key() -> None:
    def by_value(builder: StreamsBuilder) -> KStream:
        table = builder.global_table("right", **TEXTS)
        return builder.stream("left", **TEXTS).select_key(pair).join(table, lambda key, value: value, pair)

    with joining(by_value) as pipe:
        pipe("right", "b", 9, RIGHT, key="a")
        assert pipe("left", "a", 1, LEFT, key="x") == [("a&b", 1, LEFT, RIGHT)]
        assert pipe("left", "c", 1) == []


# ---- A stream that meets itself: aggregates take columns, and joins look into what they have written


def joined_with_its_count(stream: KStream) -> Any:
    return stream.join(stream.group_by_key().count(), pair, headers="latest")


def joined_with_its_counts(stream: KStream) -> Any:
    counts = stream.group_by_key().count().to_stream()
    return stream.left_join(counts, pair, JoinWindows.of_time_difference_and_grace(0, 3))


def counts_joined_with_values(stream: KStream) -> Any:
    grouped = stream.group_by_key()
    return grouped.count().join(grouped.max(), pair)


def counts_merged_with_values(stream: KStream) -> Any:
    grouped = stream.group_by_key()
    counts = grouped.count().to_stream().map_values(str)
    return counts.merge(grouped.max().to_stream())


@pytest.mark.parametrize(
    "program", [joined_with_its_count, joined_with_its_counts, counts_joined_with_values, counts_merged_with_values]
)
def test_a_batch_comes_to_what_its_records_come_to(program: Callable[[KStream], Any]) -> None:
    def join(builder: StreamsBuilder) -> Any:
        builder.stream("right", **TEXTS).to("nowhere")
        return program(builder.stream("left", **TEXTS))

    records = [("a", 1), ("b", 5), ("c", 90), ("b", 91)]
    with joining(join) as pipe:
        one_by_one = [led_to for record in records for led_to in pipe("left", *record)]
    with joining(join) as pipe:
        assert pipe.batch("left", *records) == one_by_one
    assert one_by_one


# ---- Rescaling


def test_where_the_keys_of_records_that_wait_are_is_recorded() -> None:
    """So that who rescales a state finds the shards that they belong to."""
    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXTS), builder.stream("right", **TEXTS)
    left.left_join(right, pair, WITHIN_5, StreamJoined().with_store_name("joined")).to("a", value_serde=TEXT)
    prices = builder.table("prices", **TEXTS, materialized=Materialized.as_versioned("prices", 100))
    left.join(prices, pair, Joined().with_grace_period(10), name="priced").to("b", value_serde=TEXT)
    topology = builder.build()
    known = record_keys(StateMetadata("s", 2, "key", (0,), topology.store_specs(), topology.to_json()))
    assert known["joined-left-shared-join-store"](bytes.fromhex(GOLDEN["waiting"][1]["key"])) == b"other"
    assert known["priced-Buffer"](bytes.fromhex(GOLDEN["buffered"][1]["key"])) == "ü".encode()


# ---- What is refused


def rekeyed(builder: StreamsBuilder) -> Any:
    return builder.stream("left", **TEXTS).select_key(pair)


def of_numbers(builder: StreamsBuilder) -> Any:
    return builder.stream("left", key_serde=Serdes.int64(), value_serde=TEXT)


def of_unknown_values(builder: StreamsBuilder) -> Any:
    return builder.stream("left", **TEXTS).map_values(str)


@pytest.mark.parametrize("to_table", [False, True], ids=["stream", "table"])
@pytest.mark.parametrize(
    ("left", "problem"),
    [
        (rekeyed, "repartitioned by key.* serde of their keys is unknown"),
        (of_numbers, "key serdes are 'int64' and 'string'"),
        (lambda builder: StreamsBuilder().stream("left", **TEXTS), "belongs to another StreamsBuilder"),
    ],
    ids=["rekeyed", "other key serdes", "another program"],
)
def test_sides_that_can_not_meet(left: Join, problem: str, to_table: bool) -> None:
    builder = StreamsBuilder()
    right = builder.table("right", **TEXTS) if to_table else builder.stream("right", **TEXTS)
    windows = () if to_table else (WITHIN_5,)
    stream = left(builder)
    with pytest.raises(TopologyError, match=problem):
        stream.join(right, pair, *windows)


def test_tables_whose_keys_are_written_differently() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="same key serde"):
        builder.table("left", **TEXTS).join(builder.table("right", key_serde=Serdes.int32(), value_serde=TEXT), pair)


def test_values_of_which_it_is_not_known_how_they_are_written() -> None:
    builder = StreamsBuilder()
    left, right = of_unknown_values(builder), builder.stream("right", **TEXTS)
    with pytest.raises(TopologyError, match=r"StreamJoined\.with_"):
        left.join(right, pair, WITHIN_5)
    assert isinstance(left.join(right, pair, WITHIN_5, StreamJoined.with_(None, TEXT, None)), KStream)


@pytest.mark.parametrize(
    ("materialized", "problem"),
    [(None, "keeps no old versions"), (Materialized.as_versioned("prices", 9), "for 9 ms")],
)
def test_a_grace_that_the_table_has_no_history_for(materialized: Materialized | None, problem: str) -> None:
    builder = StreamsBuilder()
    with_table("join", materialized, Joined().with_grace_period(10))(builder)
    with pytest.raises(TopologyError, match=problem):
        builder.build()


def test_windows_that_end_before_they_begin() -> None:
    with pytest.raises(ValueError, match="end before they begin"):
        WITHIN_5.before(-6)


def test_windows_for_which_nothing_is_kept() -> None:
    """In Kafka such a join is made, and finds nothing ever."""
    with pytest.raises(TopologyError, match="grace of 1 ms or more"):
        streams("join", JoinWindows.of_time_difference_with_no_grace(0))(StreamsBuilder())


def test_a_versioned_global_table() -> None:
    with pytest.raises(TopologyError, match="versioned"):
        StreamsBuilder().global_table("right", **TEXTS, materialized=Materialized.as_versioned("prices", 9))


@pytest.mark.parametrize(
    ("join", "problem"),
    [
        (lambda stream, table: stream.join("right", pair), "KStream, KTable or GlobalKTable"),
        (lambda stream, table: stream.outer_join(table, pair, WITHIN_5), "other must be a KStream"),
        (lambda stream, table: stream.join(stream, pair, 5), "windows must be a JoinWindows"),
        (lambda stream, table: stream.join(stream, pair, WITHIN_5, Joined()), "joined must be a StreamJoined"),
        (lambda stream, table: stream.join(table, pair, WITHIN_5), "joined must be a Joined"),
        (lambda stream, table: table.join(stream, pair), "other must be a KTable"),
        (lambda stream, table: table.join(table, pair, materialized="kept"), "must be a Materialized.*not 'kept'"),
        (lambda stream, table: table.filter(pair, materialized="kept"), "must be a Materialized.*not 'kept'"),
        (lambda stream, table: stream.group_by_key().count(materialized="kept"), "must be a Materialized"),
        (lambda stream, table: table.suppress(5), "suppressed must be a Suppressed, not 5"),
    ],
)
def test_arguments_of_another_kind(join: Callable[[Any, Any], Any], problem: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TypeError, match=problem):
        join(builder.stream("left", **TEXTS), builder.table("right", **TEXTS))


# ---- Bytes


@pytest.mark.parametrize("golden", GOLDEN["waiting"])
def test_waiting_records_are_those_of_kafka_streams(golden: dict[str, Any]) -> None:
    timestamp_ms, is_left, key = golden["place"]
    place = WaitingKey(timestamp_ms, is_left, bytes.fromhex(key))
    records = [WaitingValue(is_left, *map(bytes.fromhex, parts)) for is_left, *parts in golden["records"]]
    keys = waiting_key_serde(Serdes.bytes())
    assert (keys.serialize(place).hex(), encode_waiting_values(records).hex()) == (golden["key"], golden["value"])
    assert keys.deserialize(bytes.fromhex(golden["key"])) == place
    assert decode_waiting_values(bytes.fromhex(golden["value"])) == records


@pytest.mark.parametrize("golden", GOLDEN["buffered"])
def test_buffered_records_are_those_of_kafka_streams(golden: dict[str, Any]) -> None:
    timestamp_ms, key, sequence = golden["place"]
    place = BufferedKey(timestamp_ms, bytes.fromhex(key), sequence)
    timestamp_ms, value, headers, *came_from = golden["record"]
    pairs = [(name, None if held is None else bytes.fromhex(held)) for name, held in headers]
    record = BufferedRecord(timestamp_ms, bytes.fromhex(value), Headers(pairs).to_bytes(), *came_from)
    keys, records = buffered_key_serde(Serdes.bytes()), BUFFERED_RECORDS
    assert (keys.serialize(place).hex(), records.serialize(record).hex()) == (golden["key"], golden["value"])
    assert keys.deserialize(bytes.fromhex(golden["key"])) == place
    assert records.deserialize(bytes.fromhex(golden["value"])) == record


def test_kafka_streams_reads_lists_with_headers_behind_them(java: str) -> None:
    lines = "".join(f"{golden['value']}\n" for golden in GOLDEN["waiting"])
    read = run_java_program(PROGRAMS / "ReadLists.java", lines=lines).splitlines()
    records = [[f"{is_left:02x}{value}" for is_left, value, _ in golden["records"]] for golden in GOLDEN["waiting"]]
    assert read == [" ".join(values) for values in records]


WAITING = [WaitingValue(True, b"a", b""), WaitingValue(True, b"", Headers([LEFT]).to_bytes())]
BUFFERED = BufferedRecord(7, b"new", Headers([LEFT, ("null", None)]).to_bytes(), "topic", 2, 9, b"old", b"prior")


@pytest.mark.parametrize("waiting", [WAITING, WAITING[:1], []])
def test_waiting_values_are_read_as_written(waiting: list[WaitingValue]) -> None:
    assert decode_waiting_values(encode_waiting_values(waiting)) == waiting


@pytest.mark.parametrize("record", [BUFFERED, BUFFERED._replace(old=b"prior"), BufferedRecord(1, None)])
def test_buffered_records_are_read_as_written(record: BufferedRecord) -> None:
    assert decode_buffered_record(encode_buffered_record(record)) == record
    assert decode_buffered_record(encode_buffered_record(record, buffer_time_ms=5)) == record


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_waiting_values, encode_waiting_values(WAITING)),
        (decode_buffered_record, encode_buffered_record(BUFFERED)),
    ],
    ids=["waiting", "buffered"],
)
def test_malformed_bytes_are_refused(decode: Callable[[bytes], Any], data: bytes) -> None:
    whole = {len(encode_waiting_values([held._replace(header_bytes=b"") for held in WAITING]))}
    for end in range(len(data)):
        if end not in whole or decode is decode_buffered_record:
            with pytest.raises(StateStoreError):
                decode(data[:end])
    for place in range(len(data)):
        for wrong in (0x7F, 0x80, 0xFF):
            try:
                decode(data[:place] + bytes((wrong,)) + data[place + 1 :])
            except StateStoreError:
                continue
