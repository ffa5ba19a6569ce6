"""Kafka Streams' own stores open the state of a program of the DSL, by the names that Kafka gives, with headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore import Headers, Serdes
from statestore.dsl.aggregates.aggregate import Aggregate
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windows import SessionWindows, TimeWindows
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.java.reader import ReadRequest, read_with_kafka_streams

TEXT = Serdes.string()
TRACE = [["trace", b"1".hex()]]


def counted(number: int) -> str:
    return number.to_bytes(8, "big").hex()


@pytest.mark.usefixtures("java")
def test_kafka_streams_reads_the_stores_of_aggregates(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
    grouped.count()
    grouped.windowed_by(TimeWindows.of_size_and_grace(10, 5)).count()
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 5)).count()
    grouped.agg({"orders": Aggregate.count(), "longest": Aggregate.max(len), "length": Aggregate.mean(len)})
    with TopologyTestDriver(builder.build(), application_id="app", state_dir=tmp_path) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        for time_ms in (1, 3, 12):
            source.pipe_input(TestRecord("a", "x", time_ms, Headers([("trace", b"1")])))

    task, name = tmp_path / "app" / "0_0", "KSTREAM-AGGREGATE-STATE-STORE-{:010d}"
    keys, windows, sessions, several = read_with_kafka_streams(
        [
            ReadRequest(task, "headers-kv", name.format(1)),
            ReadRequest(task, "headers-window", name.format(3), {"windowSizeMs": 10, "retentionMs": 15}),
            ReadRequest(task, "headers-session", name.format(5), {"retentionMs": 10}),
            ReadRequest(task, "headers-kv", name.format(7)),
        ]
    )
    key = {"key": b"a".hex()}
    assert keys["entries"] == [{**key, "value": counted(3), "timestamp": 12, "headers": TRACE}]
    assert windows["entries"] == [
        {**key, "start": 0, "end": 10, "value": counted(2), "timestamp": 3, "headers": TRACE},
        {**key, "start": 10, "end": 20, "value": counted(1), "timestamp": 12, "headers": TRACE},
    ]
    assert sessions["entries"] == [
        {**key, "start": 1, "end": 3, "value": counted(2), "headers": TRACE},
        {**key, "start": 12, "end": 12, "value": counted(1), "headers": TRACE},
    ]
    held = b'{"orders":3,"longest":1,"length":[3,3]}'
    assert several["entries"] == [{**key, "value": held.hex(), "timestamp": 12, "headers": TRACE}]
