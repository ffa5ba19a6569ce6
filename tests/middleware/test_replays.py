"""Replays: within its window no record gets in a second time, in whatever order and with whatever gaps records come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Final

import pytest

from statestore import Processor, Stores
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors import TopologyError
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.interception.failures import FailureHandling
from statestore.middleware import EmittedRecord
from statestore.middleware.security.signing import SIGNATURE_HEADER, Signing
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores, flush_stores
from statestore.recovery.commit.pointer_fields import SHARD_CLOCK, EarlierShards
from tests.support.kept_records import BYTES, keeping
from tests.support.passed_records import Clocks, produced, started
from tests.support.security_keys import SIGNING_RINGS

WINDOW_MS: Final = 10
AHEAD_MS: Final = 3
HANDLING: Final = FailureHandling(refusal="continue")
SIGNED_MS: Final = 20
LATE_MS: Final = 90
TIMES_MS: Final = (SIGNED_MS - AHEAD_MS, SIGNED_MS, SIGNED_MS + WINDOW_MS, SIGNED_MS + WINDOW_MS + 1, LATE_MS)
"""From the first to the last at which a record can come that was signed then, the one after, and one after a gap."""


@cache
def signed_at(time_ms: int, number: int = 0) -> EmittedRecord:
    signer = started(Signing(SIGNING_RINGS["hmac"][0]), Clocks(time_ms, shard=number))
    (sent,) = signer.on_emit(produced(b"k", b"v"))
    return sent


def signature(record: EmittedRecord) -> bytes:
    return record.headers.last_header(SIGNATURE_HEADER).value


class Shard:
    """A shard of a query: each batch is a task of its own, which goes on from what the one before has committed."""

    def __init__(self, clock: str) -> None:
        self._bytes: dict[str, MemoryByteStore] = {}
        self._stream_time_ms = -1
        self._earlier: list[EarlierShards] = []
        refusing = Signing(
            SIGNING_RINGS["hmac"][1],
            sign=False,
            window_ms=WINDOW_MS,
            ahead_ms=AHEAD_MS,
            clock=clock,
            refuse_replays=True,
        )
        self._topology = keeping().with_interceptors([refusing])
        self._offset = 0

    def rescale(self, stream_time_ms: int) -> None:
        """Be one of a state of another number of shards, all others of which had seen no later time than this."""
        self._earlier = [EarlierShards(1, "key", {0: {SHARD_CLOCK: self._stream_time_ms}})]
        self._stream_time_ms = stream_time_ms

    def batch(self, records: Sequence[tuple[EmittedRecord, int]], now_ms: int, *, in_columns: bool) -> list[bytes]:
        """Have records come, each with its timestamp, and return the signatures of those that are let in."""
        context = TaskRecordContext(self._stream_time_ms, now_ms)
        backing = lambda name: StoreBacking(self._bytes.setdefault(name, MemoryByteStore(name)))  # noqa: E731
        stores = build_stores(self._topology, context, backing)
        task = Task(self._topology, 0, stores, context, handling=HANDLING, earlier=self._earlier)
        came = [self._arrived(*one) for one in records]
        signatures = {source[2]: signature(record) for source, record in came}
        let_in: list[SourceFields] = []
        if in_columns:
            for part in task.ingest_batch(source_batch([source for source, _ in came])):
                let_in += zip(*(column.to_pylist() for column in part.columns), strict=True)
                task.process_batch(part)
        else:
            for source in task.ingest([source for source, _ in came]):
                let_in.append(source)
                task.process([source])
        task.end_batch(now_ms)
        task.close()
        flush_stores(stores)
        self._stream_time_ms = context.stream_time_ms
        return [signatures[source[2]] for source in let_in]

    def _arrived(self, record: EmittedRecord, timestamp_ms: int) -> tuple[SourceFields, EmittedRecord]:
        self._offset += 1
        header_bytes = record.headers.to_bytes()
        return ("orders", 0, self._offset, timestamp_ms, record.key, record.value, header_bytes), record


@pytest.mark.parametrize("in_columns", [False, True])
def test_no_record_gets_in_twice_whatever_comes_before_and_between(in_columns: bool) -> None:
    """One record, all times that it and its repetition can have, and those of others before them and between."""
    record, early, late = (signed_at(time_ms, number) for number, time_ms in enumerate((SIGNED_MS, 0, LATE_MS)))
    first_let_in = 0
    for first_ms, again_ms, before, between in product(TIMES_MS, TIMES_MS, (early, late), (early, late)):
        shard = Shard("record")
        shard.batch([(before, LATE_MS if before is late else 0)], 0, in_columns=in_columns)
        came = [(record, first_ms), (between, LATE_MS if between is late else 0)]
        let_in = shard.batch(came, 0, in_columns=in_columns).count(signature(record))
        first_let_in += let_in
        let_in += shard.batch([(record, again_ms)], 0, in_columns=in_columns).count(signature(record))
        assert let_in <= 1, (before, first_ms, between, again_ms)
    assert first_let_in == 3 * len(TIMES_MS) * 2, "three of the times are in the window, unless a late one came before"


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("clock", ["record", "system"])
def test_no_record_gets_in_twice_in_random_histories_and_new_ones_do_once(clock: str, in_columns: bool) -> None:
    rng = random.Random(f"{clock} {in_columns}")
    for number in range(10):
        shard, known, let_in = Shard(clock), list[EmittedRecord](), list[bytes]()
        now_ms = latest_ms = 0
        for _ in range(12):
            batch, fresh = [], []
            now_ms += rng.choice((0, 1, WINDOW_MS, WINDOW_MS + AHEAD_MS, 50))
            for _ in range(rng.randint(1, 4)):
                time_ms = now_ms if clock == "system" else latest_ms + rng.choice((0, 1, WINDOW_MS, 50))
                if known and rng.random() < 0.6:
                    # Whoever sends a record again may give it any time, and come late as well.
                    batch.append((rng.choice(known), max(0, time_ms - rng.randint(-5, 40))))
                else:
                    known.append(signed_at(max(0, time_ms + rng.randint(-WINDOW_MS, AHEAD_MS)), len(known)))
                    batch.append((known[-1], time_ms))
                    fresh.append(signature(known[-1]))
                latest_ms = max(latest_ms, batch[-1][1])
            made = shard.batch(batch, now_ms, in_columns=in_columns)
            assert set(fresh) <= set(made), "what is in order, and was signed in the window, gets in"
            let_in += made
        assert len(let_in) == len(set(let_in)), number


@pytest.mark.parametrize("clock", ["record", "system"])
def test_what_came_as_early_as_it_can_is_known_until_it_can_come_no_more(clock: str) -> None:
    shard, record = Shard(clock), signed_at(SIGNED_MS)
    earliest_ms, last_ms = SIGNED_MS - AHEAD_MS, SIGNED_MS + WINDOW_MS
    assert shard.batch([(record, earliest_ms)], earliest_ms, in_columns=False)
    assert shard.batch([(signed_at(last_ms), last_ms)], last_ms, in_columns=False)
    assert not shard.batch([(record, last_ms)], last_ms, in_columns=False)
    assert Shard(clock).batch([(record, last_ms)], last_ms, in_columns=False), "nothing else is in its way"


def test_what_has_gone_from_the_store_is_too_old_after_rescaling_too() -> None:
    """Whatever the shards had seen that its own was put together with."""
    shard, record = Shard("record"), signed_at(SIGNED_MS)
    assert shard.batch([(record, SIGNED_MS)], 0, in_columns=False)
    assert shard.batch([(signed_at(LATE_MS), LATE_MS)], 0, in_columns=False)
    shard.rescale(0)
    for in_columns in (False, True):
        assert not shard.batch([(record, SIGNED_MS)], 0, in_columns=in_columns)
    assert shard.batch([(signed_at(LATE_MS, 1), LATE_MS)], 0, in_columns=False)


def test_a_query_in_which_another_shard_may_get_the_repetition_is_refused_at_its_start() -> None:
    refusing = Signing(SIGNING_RINGS["hmac"][0], window_ms=WINDOW_MS, refuse_replays=True)
    around = keeping().with_interceptors([refusing])
    around.check_sharding("key")
    keeping().with_interceptors([Signing(SIGNING_RINGS["hmac"][0], window_ms=WINDOW_MS)]).check_sharding("partition")
    with pytest.raises(TopologyError, match=r"'signing' can't run.*another partition would come to another shard"):
        around.check_sharding("partition")
    rates = Stores.key_value_store_builder(Stores.persistent_key_value_store("rates"), BYTES, BYTES)
    everywhere = keeping().add_global_store(
        rates, "rates-in", "rates", "keep-rates", Processor, key_serde=BYTES, value_serde=BYTES
    )
    with pytest.raises(TopologyError, match=r"sent again to \['rates'\], which all shards read.*bind_topic"):
        everywhere.with_interceptors([refusing]).check_sharding("key")
    bound = Signing(SIGNING_RINGS["hmac"][0], window_ms=WINDOW_MS, refuse_replays=True, bind_topic=True)
    everywhere.with_interceptors([bound]).check_sharding("key")
