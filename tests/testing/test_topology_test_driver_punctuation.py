"""Punctuation in the test driver: time passes with records, or as the test says."""

from __future__ import annotations

import pytest

from statestore import Headers, ProcessorContext, PunctuationType, Record, Topology
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import KINDS, TEXT, chain, changelog_of, forward, input_of, output_of

HEADERS = Headers([("h", b"1")])
STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def punctuating(kind: PunctuationType, interval_ms: int, fired: list[int]) -> Topology:
    """Return a topology that notes when it is punctuated, and forwards the times."""

    def init(context: ProcessorContext) -> None:
        def punctuate(now_ms: int) -> None:
            fired.append(now_ms)
            context.forward(Record("fired", str(now_ms), now_ms))

        context.schedule(interval_ms, kind, punctuate)

    return chain(lambda context, record: None, init=init)


def test_stream_time_punctuates_as_records_pass_it() -> None:
    # Seen at Kafka's driver 4.3.1.
    fired: list[int] = []
    with TopologyTestDriver(punctuating(STREAM, 10, fired)) as driver:
        topic = input_of(driver)
        for time_ms in (0, 3, 9, 10, 15, 5, 35, 36, 40, 1000, 1001, 999, 1010):
            topic.pipe_input("v", timestamp_ms=time_ms)
        driver.advance_wall_clock_time(100_000)
        assert fired == [0, 10, 35, 40, 1000, 1010]
        assert output_of(driver).read_values_to_list() == [str(time_ms) for time_ms in fired]
        assert driver.metrics()["punctuate-total"] == 6


def test_the_wall_clock_punctuates_when_it_is_advanced_and_never_by_itself() -> None:
    fired: list[int] = []
    with TopologyTestDriver(punctuating(WALL, 60, fired), initial_wall_clock_time_ms=42) as driver:
        input_of(driver).pipe_input("v", timestamp_ms=1_000_000)
        for advance_ms in (0, 59, 1, 59, 1, 200, 40):
            driver.advance_wall_clock_time(advance_ms)
        assert fired == [102, 162, 362, 402]
        assert output_of(driver).read_values_to_list() == ["102", "162", "362", "402"]
        with pytest.raises(ValueError, match="advance_ms"):
            driver.advance_wall_clock_time(-1)
        assert driver.wall_clock_time_ms == 402


def test_what_a_punctuator_writes_is_committed_and_piped_again() -> None:
    def init(context: ProcessorContext) -> None:
        context.schedule(10, WALL, lambda now_ms: punctuate(context, now_ms))

    def punctuate(context: ProcessorContext, now_ms: int) -> None:
        context.state_store("s").put("p", str(now_ms))
        context.forward(Record("k", "late", 5))

    topology = chain(forward, KINDS["kv"].persistent("s"), init=init)
    topology.add_source("more", "out", key_serde=TEXT, value_serde=TEXT)
    topology.add_sink("last", "last", ["more"])
    with TopologyTestDriver(topology) as driver:
        driver.advance_wall_clock_time(10)
        assert changelog_of(driver, "s") == [(b"p", b"10", 10, [])]
        assert output_of(driver, "last").read_records_to_list() == [TestRecord("k", "late", 5)]
