"""The hooks at stores: what a batch writes is shown before it is committed, what expires before it is deleted."""

from collections.abc import Iterable
from typing import Any

import pytest

from statestore import Headers, Serdes, Stores
from statestore.errors import ProcessorError
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.middleware import Interceptor
from statestore.middleware.lifetime.expiry import ExpiryHeader
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import chain, input_of

TEXT = Serdes.string()
STORE = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("s"), TEXT, TEXT
)
EXPIRES = Headers([(EXPIRY_HEADER, expiry_value(100))])


class Sees(Interceptor):
    """Notes what it is shown, in a list that all copies share."""

    def __init__(self, fails_at: str = "") -> None:
        self.seen: list[Any] = []
        self.fails_at = fails_at

    def on_changelog(self, store: str, records: Iterable[ChangelogRecord]) -> None:
        if store == "s":
            self.seen += [("written", record.key, record.value) for record in records]

    def on_expiry(self, store: str, key: bytes, value: bytes | None) -> None:
        if self.fails_at == "on_expiry":
            raise RuntimeError("told nobody")
        self.seen.append((store, key, value is not None and value.endswith(b"v")))


def put(context: Any, record: Any) -> None:
    context.state_store("s").put_value(record.key, record.value)


def test_b6_both_fire_in_the_test_driver() -> None:
    sees = Sees()
    topology = chain(put, STORE.with_expiry_header())
    with TopologyTestDriver(topology, interceptors=[ExpiryHeader(), sees]) as driver:
        topic = input_of(driver)
        topic.pipe_input(TestRecord("a", "v", headers=EXPIRES, timestamp_ms=5))
        topic.pipe_input(TestRecord("b", "v", timestamp_ms=5))
        assert sees.seen == [("written", b"a", b"v"), ("written", b"b", b"v")]
        driver.advance_wall_clock_time(99)
        assert len(sees.seen) == 2
        driver.advance_wall_clock_time(1)
        assert sees.seen[2:] == [("s", b"a", True), ("written", b"a", None)]


def test_b16_what_comes_too_late_never_reaches_state() -> None:
    sees = Sees()
    topology = chain(put, STORE.with_expiry_header())
    with TopologyTestDriver(topology, interceptors=[ExpiryHeader(), sees], initial_wall_clock_time_ms=100) as driver:
        input_of(driver).pipe_input(TestRecord("a", "v", headers=EXPIRES, timestamp_ms=5))
        assert sees.seen == []


def test_b16_what_is_sent_says_when_it_expires() -> None:
    with TopologyTestDriver(chain(), interceptors=[ExpiryHeader(50)]) as driver:
        input_of(driver).pipe_input(TestRecord("a", "v", timestamp_ms=5))
        sent = driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT).read_record()
        assert list(sent.headers) == [(EXPIRY_HEADER, expiry_value(55))]


def test_b6_who_fails_ends_the_batch_and_nothing_is_deleted() -> None:
    sees = Sees("on_expiry")
    with TopologyTestDriver(chain(put, STORE.with_expiry_header()), interceptors=[sees]) as driver:
        input_of(driver).pipe_input(TestRecord("a", "v", headers=EXPIRES, timestamp_ms=5))
        with pytest.raises(ProcessorError, match=r"Sees.*on_expiry"):
            driver.advance_wall_clock_time(100)
        sees.fails_at = ""
        driver.restart()
        driver.advance_wall_clock_time(0)
        assert ("s", b"a", True) in sees.seen
