"""Changes that are held back: until when, in what order, how many, and as which records they go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, Serdes
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.suppressed import BufferConfig, EmitStrategy, Suppressed
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.errors import SuppressionBufferFullError, TopologyError
from statestore.format.values.buffered_record import BufferedRecord, encode_buffered_record
from statestore.middleware import FailureHandling
from statestore.processor.processor import Processor
from statestore.stores.key_value import KeyValueStore
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.dsl.runs import TEXT, DslRun

WINDOWS = TimeWindows.of_size_and_grace(10, 5)
FINAL = Suppressed.until_window_closes(BufferConfig.unbounded())


def joined(stream: KStream) -> KTable:
    return stream.group_by_key().reduce(lambda one, other: one + other)


def final(stream: KStream) -> KTable:
    table = stream.group_by_key().windowed_by(WINDOWS).reduce(lambda one, other: one + other, headers="append")
    return table.suppress(FINAL)


def limited(limit_ms: int, buffer: BufferConfig | None = None) -> Callable[[KStream], KTable]:
    return lambda stream: joined(stream).suppress(Suppressed.until_time_limit(limit_ms, buffer))


def test_windows_go_on_when_they_close_with_the_last_changes_headers(tmp_path: Path) -> None:
    with DslRun(final, state_dir=tmp_path) as run:
        assert run.pipe(("b", "x", 9, "1"), ("a", "y", 8, "2"), ("b", "z", 7, "3"), ("c", "w", 14)) == []
    with DslRun(final, state_dir=tmp_path) as run:
        assert run.pipe(("c", "v", 15)) == ["a[0,10] y @8 2", "b[0,10] xz @9 1 3"]
        assert run.pipe(("a", "late", 9), ("d", "u", 1_000)) == ["c[10,20] wv @15"]


@pytest.mark.parametrize(
    ("windows", "closed"),
    [
        (SlidingWindows.of_time_difference_and_grace(10, 5), ["a[10,20] x @20"]),
        (SessionWindows.of_inactivity_gap_and_grace(5, 5), ["a[20,20] x @20"]),
    ],
)
def test_sessions_and_sliding_windows_go_on_when_they_close(windows: Any, closed: list[str]) -> None:
    def declare(stream: KStream) -> KTable:
        return stream.group_by_key().windowed_by(windows).reduce(lambda one, other: one + other).suppress(FINAL)

    close_ms = 25 if isinstance(windows, SlidingWindows) else 30
    with DslRun(declare) as run:
        assert run.pipe(("a", "x", 20), ("b", "y", close_ms - 1)) == []
        assert run.pipe(("b", "z", close_ms))[: len(closed)] == closed


def test_a_window_that_is_deleted_is_not_said_to_be_gone() -> None:
    def declare(stream: KStream) -> KTable:
        windowed = stream.group_by_key().windowed_by(WINDOWS)
        return windowed.reduce(lambda one, other: None if other == "gone" else one + other).suppress(FINAL)

    with DslRun(declare) as run:
        assert run.pipe(("a", "x", 1), ("a", "gone", 2), ("b", "y", 100)) == []


def test_a_limit_counts_from_a_keys_first_change_and_another_key_may_end_it() -> None:
    with DslRun(limited(5)) as run:
        assert run.pipe(("a", "x", 10, "1"), ("b", "y", 11, "2"), ("a", "z", 14, "3")) == []
        assert run.pipe(("c", "w", 15)) == ["a xz @14 3"]
        assert run.pipe(("c", "v", 16), ("d", "u", 3, "4")) == ["b y @11 2", "d u @3 4"]


def test_a_limit_of_nothing_holds_nothing_back() -> None:
    with DslRun(limited(0)) as run:
        assert run.pipe(("a", "x", 10), ("b", "y", 9)) == ["a x @10", "b y @9"]


def test_what_others_wrote_into_the_buffer_is_what_goes_on() -> None:
    with DslRun(limited(10)) as run:
        run.pipe(("a", "x", 1), ("b", "x", 1))
        stores = run.driver.get_all_state_stores()
        buffer = stores[next(name.removesuffix("-times") for name in stores if name.endswith("-times"))]
        before = dict(buffer.all())
        run.pipe(("a", "y", 2), ("b", "y", 2))
        buffer.put(b"a", before[b"a"])
        buffer.put(b"b", None)
        assert run.pipe(("c", "z", 11)) == ["a x @1"]


def test_the_earliest_go_on_before_their_time_when_there_are_too_many() -> None:
    with DslRun(limited(100, BufferConfig.max_records(2))) as run:
        assert run.pipe(("b", "x", 12), ("a", "y", 12), ("a", "z", 13)) == []
        assert run.pipe(("c", "w", 11), ("d", "v", 14)) == ["c w @11", "a yz @13"]


def test_bytes_are_counted_as_kafka_does() -> None:
    # Each has 28 bytes, 2 of the topic, a key and a value of 1, and the header.
    config = BufferConfig.max_bytes(64).shut_down_when_full()
    with DslRun(limited(100, config)) as run:
        assert run.pipe(("a", "x", 10), ("b", "y", 10)) == []
        with pytest.raises(SuppressionBufferFullError) as caught:
            run.pipe(("a", "z", 11))
    assert (caught.value.records, caught.value.size_bytes, caught.value.max_bytes) == (2, 66, 64)
    with DslRun(limited(100, BufferConfig.max_bytes(43))) as run:
        assert run.pipe(("a", "x", 10, "12345")) == []  # the header has 10
        assert run.pipe(("a", "y", 10, "1234567")) == ["a xy @10 1234567"]


def test_what_is_too_much_fails_the_batch_and_no_handler_skips_it() -> None:
    def declare(stream: KStream) -> KTable:
        return limited(100, BufferConfig.max_records(1).shut_down_when_full())(stream)

    builder = StreamsBuilder()
    declare(builder.stream("in", key_serde=TEXT, value_serde=TEXT)).to_stream().to("out")
    with TopologyTestDriver(
        builder.build(),
        failures=FailureHandling(processing="continue", dead_letters="dead"),
    ) as driver:
        piped = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        piped.pipe_input("a", "x", timestamp_ms=1)
        with pytest.raises(SuppressionBufferFullError, match="2 keys of 64 bytes, and may hold 1 keys"):
            piped.pipe_input("b", "y", timestamp_ms=1)


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_dead_letter_is_the_record_that_failed_after_others_have_gone_on(in_columns: bool) -> None:
    builder = StreamsBuilder(in_columns=in_columns)
    table = joined(builder.stream("in", key_serde=TEXT, value_serde=TEXT))
    table.suppress(Suppressed.until_time_limit(0)).to_stream().to("out")
    table.to_stream().to("wrong", value_serde=Serdes.int64())
    failures = FailureHandling(production="dead_letter", dead_letters="dead")
    with TopologyTestDriver(builder.build(), failures=failures) as driver:
        driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT).pipe_input("a", "x", timestamp_ms=1)
        dead = driver.create_output_topic("dead", key_serde=TEXT, value_serde=TEXT)
        assert dead.read_key_values_to_list() == [("a", "x")]


@pytest.mark.parametrize("in_columns", [False, True])
def test_dead_letters_of_what_a_batch_held_back_are_its_records(in_columns: bool) -> None:
    builder, kept = StreamsBuilder(in_columns=in_columns), Materialized.as_("last").with_caching_enabled()
    last = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key().last(materialized=kept)
    last.to_stream().to("wrong", value_serde=Serdes.int64())
    failures = FailureHandling(production="dead_letter", dead_letters="dead")
    with TopologyTestDriver(builder.build(), failures=failures) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        source.pipe_micro_batch([TestRecord(key, "x", 1) for key in "ab"])
        dead = driver.create_output_topic("dead", key_serde=TEXT, value_serde=TEXT)
        assert dead.read_key_values_to_list() == [("a", "x"), ("b", "x")]


def test_what_a_key_was_is_what_it_was_before_its_last_change() -> None:
    def declare(stream: KStream) -> KStream:
        changes = joined(stream).suppress(Suppressed.until_time_limit(5)).changes()
        return changes.map_values(lambda change: f"{change.old}->{change.new}", value_serde=TEXT)

    with DslRun(declare) as run:
        assert run.pipe(("a", "x", 10), ("a", "y", 11), ("b", "z", 15)) == ["a x->xy @11"]


def test_records_go_on_as_those_that_the_changes_were_made_for() -> None:
    origins: list[Any] = []

    class Told(Processor):
        def init(self, context: Any) -> None:
            self._context = context

        def process(self, record: Any) -> None:
            origins.append((record.key, self._context.record_metadata))

    builder = StreamsBuilder()
    table = builder.table("in", key_serde=TEXT, value_serde=TEXT).suppress(Suppressed.until_time_limit(5))
    table.to_stream(name="changes")
    topology = builder.build()
    topology.add_processor("told", Told, ["changes"])
    with TopologyTestDriver(topology) as driver:
        piped = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        for key, time_ms in (("a", 0), ("b", 1), ("a", 2), ("c", 5)):
            piped.pipe_input(key, "x", timestamp_ms=time_ms)
    assert origins == [("a", ("in", 0, 2))]


def test_nothing_is_looked_up_where_nothing_is_due(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scans: list[str] = []
    for method in ("range", "all"):
        scan = getattr(KeyValueStore, method)
        monkeypatch.setattr(
            KeyValueStore,
            method,
            lambda self, *arguments, scan=scan: scans.append(self.name) or scan(self, *arguments),
        )
    with DslRun(limited(100, BufferConfig.max_records(1_000)), state_dir=tmp_path) as run:
        scans.clear()
        run.pipe(*((f"k{number}", "x", 10 + number % 50) for number in range(100)))
        assert scans == []
    with DslRun(limited(100, BufferConfig.max_records(1_000)), state_dir=tmp_path) as run:
        run.pipe(("a", "y", 10))
        assert scans == []
        assert len(run.pipe(("a", "y", 110), ("a", "y", 110), ("a", "y", 110))) == 3
        assert scans == ["KTABLE-SUPPRESS-STATE-STORE-0000000004-times"]


def traced(trace: bytes) -> bytes:
    return Headers([("trace", trace)]).to_bytes()


def test_a_buffer_goes_on_from_its_changelog_and_counts_what_is_in_it() -> None:
    name = "KTABLE-SUPPRESS-STATE-STORE-0000000004"
    held = [
        (key, encode_buffered_record(BufferedRecord(time_ms, b"v", traced(key), "in", 0, 0), buffer_time_ms=time_ms))
        for key, time_ms in ((b"a", 10), (b"b", 9))
    ]
    builder = StreamsBuilder()
    limited(5, BufferConfig.max_records(3))(builder.stream("in", key_serde=TEXT, value_serde=TEXT)).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build(), changelogs={name: [TestRecord(*each, 0) for each in held]}) as driver:
        piped = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        output = driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT)
        piped.pipe_input("c", "x", timestamp_ms=12)
        assert output.is_empty
        piped.pipe_input("d", "x", timestamp_ms=12)
        assert [(each.key, each.headers) for each in output.read_records_to_list()] == [
            ("b", Headers([("trace", b"b")]))
        ]


def test_who_joins_it_sees_what_a_key_was_before_it_was_held_back() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key_serde=TEXT, value_serde=TEXT).suppress(Suppressed.until_time_limit(5))
    right = builder.table("right", key_serde=TEXT, value_serde=TEXT)
    left.join(right, lambda one, other: one + other, value_serde=TEXT).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        lefts, rights = (
            driver.create_input_topic(name, key_serde=TEXT, value_serde=TEXT) for name in ("left", "right")
        )
        output = driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT)
        lefts.pipe_input("a", "x", timestamp_ms=0)
        rights.pipe_input("a", "1", timestamp_ms=0)
        assert output.is_empty
        lefts.pipe_input("b", "y", timestamp_ms=5)
        assert output.read_values_to_list() == ["x1"]
        lefts.pipe_input("a", "z", timestamp_ms=6)
        rights.pipe_input("a", "2", timestamp_ms=6)
        assert output.read_values_to_list() == ["x2"]
        lefts.pipe_input("b", "w", timestamp_ms=11)
        assert output.read_values_to_list() == ["z2"]


def test_tools_find_the_records_key() -> None:
    for declare, words in ((final, ("timers windowed", "windowed")), (limited(5), ("timers", "value"))):
        with DslRun(declare) as run:
            found = [node.entry_keys for node in run.topology.processors.values() if node.entry_keys]
            assert [tuple(sorted(keys.values())) for keys in found] == [words]
            assert "-times" not in str(run.topology.describe())


def test_what_can_not_be_is_refused_when_the_program_is_built() -> None:
    with pytest.raises(TopologyError, match="its keys have no windows"):
        DslRun(lambda stream: joined(stream).suppress(FINAL))
    with pytest.raises(ValueError, match="only final results"):
        Suppressed.until_window_closes(BufferConfig.max_records(5))
    with pytest.raises(ValueError, match="record_limit must be"):
        BufferConfig.max_records(-1)
    with pytest.raises(TopologyError, match="the serde of its values is unknown"):
        DslRun(lambda stream: joined(stream).map_values(len).suppress(Suppressed.until_time_limit(5)))
    builder = StreamsBuilder()
    versions = builder.table("in", key_serde=TEXT, value_serde=TEXT, materialized=Materialized.as_versioned("v", 100))
    versions.filter(lambda key, value: True).suppress(Suppressed.until_time_limit(5))
    with pytest.raises(TopologyError, match="versioned"):
        builder.build()


def test_windows_that_are_final_can_be_suppressed_again() -> None:
    def declare(stream: KStream) -> KTable:
        windowed = stream.group_by_key().windowed_by(WINDOWS).emit_strategy(EmitStrategy.on_window_close())
        return windowed.count(materialized=Materialized.with_(TEXT, Serdes.int64())).suppress(FINAL)

    with DslRun(declare) as run:
        assert run.pipe(("a", "x", 1), ("a", "x", 30)) == []
        assert run.pipe(("a", "x", 60)) == ["a[0,10] 1 @1"]
