"""A chain around plain clients: what interceptors have of a task, they have there."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import ConsumerRecord, ProducerRecord
from statestore.errors import ProcessorError, SignatureRefusedError
from statestore.middleware import IngestedRecord, Interceptor
from statestore.middleware.security.signing import Signing
from statestore.middleware.size.slicing import Slicing
from statestore.processor.chain_client import ChainClient
from tests.middleware.test_interceptors_in_tasks import Counting, Failing
from tests.support.interceptors import ForbiddenError, Refusing, Stamp
from tests.support.security_keys import SIGNING_RINGS


def polled(value: bytes | None, offset: int = 0, headers: Any = ()) -> IngestedRecord:
    return ConsumerRecord("in", 0, offset, key=b"k", value=value, timestamp_ms=5, headers=headers)


def test_a_consumer_glues_what_a_producer_has_sliced() -> None:
    value = bytes(range(256)) * 10
    with ChainClient([Stamp("a"), Slicing(1000, glue=False)]) as producer, ChainClient([Slicing(None)]) as consumer:
        sent = producer.emit(ProducerRecord("in", key=b"k", value=value, timestamp_ms=5))
        assert len(sent) > 2
        taken = [consumer.ingest(polled(each.value, number, each.headers)) for number, each in enumerate(sent)]
        assert [len(each) for each in taken] == [0] * (len(sent) - 1) + [1]
        (whole,) = taken[-1]
        assert (whole.value, list(whole.headers), whole.offset) == (value, [("out", b"a")], len(sent) - 1)


def test_what_is_refused_is_raised_or_given_as_it_came() -> None:
    refused: list[Any] = []
    with ChainClient(
        [Refusing("guard"), Stamp("a")], on_refusal=lambda record, name, error: refused.append((record, name, error))
    ) as client:
        assert client.ingest(polled(b"bad")) == []
        assert client.emit(ProducerRecord("out", key=b"k", value=b"bad")) == []
        assert [made.value for made in client.ingest(polled(b"good"))] == [b"good"]
    (came, name, error), (sent, *_) = refused
    assert (came.value, list(came.headers), name, type(error)) == (b"bad", [], "guard", ForbiddenError)
    assert sent is None
    with ChainClient([Refusing("guard")]) as strict, pytest.raises(ForbiddenError):
        strict.ingest(polled(b"bad"))


def test_the_clock_ticks_with_the_calls_and_interceptors_are_closed_once() -> None:
    calls: list[Any] = []
    times = iter([0, 50, 120, 130])
    with ChainClient([Counting(calls, tick_ms=100)], clock=lambda: next(times)) as client:
        client.ingest(polled(b"a"))
        client.ingest(polled(b"b"))
        client.finish_batch()
    assert calls == [("init", 0), ("tick", 120), "finish", "close"]
    client.close()
    assert calls.count("close") == 1


class Expired(Interceptor):
    """Notes the stores in which an entry expires."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def on_expiry(self, store: str, key: bytes, value: bytes | None) -> None:
        self.seen.append(store)


@pytest.mark.parametrize("clock", ["system", "record"])
def test_what_stores_remember_expires(clock: str) -> None:
    signs, verifies = SIGNING_RINGS["hmac"]
    refusing = Signing(verifies, sign=False, window_ms=10, ahead_ms=0, clock=clock, refuse_replays=True)
    now_ms, seen = 5, list[str]()
    with (
        ChainClient([Signing(signs)], clock=lambda: now_ms) as producer,
        ChainClient([Expired(seen), refusing], clock=lambda: now_ms) as consumer,
    ):
        for offset, now_ms in enumerate((5, 15, 16, 17)):
            (sent,) = producer.emit(ProducerRecord("in", key=b"k", value=b"v"))
            assert consumer.ingest(polled(b"v", offset, sent.headers).copy(timestamp_ms=now_ms))
            with pytest.raises(SignatureRefusedError, match="seen before"):
                consumer.ingest(polled(b"v", offset, sent.headers).copy(timestamp_ms=now_ms))
            consumer.finish_batch()
            assert seen == ["signing-seen"] * (now_ms >= 16)


def test_what_fails_at_the_start_or_at_the_end_names_the_interceptor() -> None:
    with pytest.raises(ProcessorError, match=r"'failing' failed in init\(\)"):
        ChainClient([Failing("init")])
    with pytest.raises(ProcessorError, match=r"'failing' failed in close\(\)"), ChainClient([Failing("close")]):
        pass
