"""Slices in a streaming query: glued across a restart, given up with a report, and cut on their way out."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import NamedTuple

import pytest

from orders import START_MS
from statestore import Headers, ProducerRecord, Serdes, Topology
from statestore.middleware import Chain, FailureHandling
from statestore.middleware.size.slicing import CHUNK_HEADER, Slicing
from statestore.middleware.size.slicing.slice import Slice
from tests.support.spark.queries import OrderQuery

VALUE = random.Random(7).randbytes(2000)
HEADERS = [("trace", b"\x01"), ("trace", None)]


class Row(NamedTuple):
    """One record, as it stands in the topic."""

    key: bytes
    value: bytes
    offset: int
    headers: list[tuple[str, bytes | None]]
    partition: int = 0
    timestamp_ms: int = START_MS


def slices(key: bytes, offset: int) -> list[Row]:
    record = ProducerRecord("orders", key=key, value=VALUE, timestamp_ms=START_MS, headers=HEADERS)
    made = Chain([Slicing(600, glue=False)]).emit(record)
    return [
        Row(key, each.value or b"", offset + number, [(name, value) for name, value in each.headers])
        for number, each in enumerate(made)
    ]


def passing() -> Topology:
    topology = Topology()
    topology.add_source("in", "orders", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    topology.add_sink("out", "out", ["in"], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    return topology


def headers_of(row: object) -> Headers:
    return Headers([(header.key, header.value and bytes(header.value)) for header in row.headers or ()])  # type: ignore


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_b15_a_restart_in_the_middle_of_a_message_loses_nothing_and_a_lost_slice_is_reported(
    order_query: OrderQuery,
) -> None:
    whole, lost, small = slices(b"ada", 0), slices(b"bob", 10), Row(b"cleo", b"small", 20, HEADERS)
    options = {
        # What came in an earlier batch is overdue at the end of the next one.
        "interceptors": [Slicing(800, timeout=timedelta(milliseconds=1))],
        "failures": FailureHandling(dead_letters="dead"),
        "shards": 2,
    }
    order_query.add([*whole[1:3], lost[1], lost[0], small])
    order_query.run(passing(), **options)
    assert [(bytes(row.key), bytes(row.value)) for row in order_query.outputs] == [(b"cleo", b"small")]
    assert len(order_query.rows_of("slicing-chunks")) == 4

    order_query.outputs.clear()
    order_query.add([whole[1], *whole[3:], whole[0], lost[0]._replace(key=b"no slice", headers=[], offset=21)])
    order_query.run(passing(), **options)
    (dead,) = [row for row in order_query.outputs if row.topic == "dead"]
    assert (bytes(dead.key), bytes(dead.value)) == (b"bob", lost[0].value)
    message = headers_of(dead).last_header("__connect.errors.exception.message").value.decode()
    assert message.startswith(f"slices 2-{len(lost) - 1} of {len(lost)} of message ")

    sent = [row for row in order_query.outputs if bytes(row.key) == b"ada"]
    assert {row.topic for row in sent} == {"out"}
    by_index = {Slice.of(headers_of(row)).index: row for row in sent}
    assert b"".join(bytes(by_index[index].value) for index in range(len(sent))) == VALUE
    assert len(sent) == 3 < len(whole)
    assert list(headers_of(by_index[0]).remove(CHUNK_HEADER)) == HEADERS
    assert order_query.rows_of("slicing-chunks") == []
