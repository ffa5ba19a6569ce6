"""What the simulated query does where middleware keeps state: signed messages come in slices, late, twice or in part.

A message is signed once and sliced each time that it is sent: first by who made it, later by who replays it. Each slice
of each sending comes in one batch, or gets lost. The query glues, verifies, refuses replays, and charges for what is
left; it keeps that until a header says that it expires, and tells with each message what it has. The protocol's oracle
holds the stores against clean ones. What the interceptors are for is held against the words of their promises, by who
knows all that came and went, and looks into no store.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.headers.expiry_header import expiry_value
from statestore.headers.topic_columns import SinkFields, SourceFields, source_batch
from statestore.interception.chain import Chain
from statestore.interception.failures import FailureHandling, OnFailure
from statestore.interception.interceptor import Interceptor
from statestore.middleware.lineage.chargeback import NOBODY, USAGE_STORE, Chargeback, Usage, read_usage
from statestore.middleware.security.keys import HmacKey, Keyring
from statestore.middleware.security.signing import Signing
from statestore.middleware.size.slicing import Slicing
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.recovery.commit.pointer_fields import BatchEnd
from tests.simulation.workload import BATCH_MS, SPECS, Held, Workload, batch_number

WINDOW_MS, AHEAD_MS, TIMEOUT_MS = 150, 50, 75
CLOCKS: Final = ("system", "record")
_RING: Final = Keyring({"k": HmacKey(bytes(32))}, "k")
_HANDLING: Final = FailureHandling(refusal=OnFailure.CONTINUE)
_SLICE_BYTES, _KINDS = 256, 5
_TRIES: Final = 12
"""Batches after that of a message in which it may still be sent again."""


class Slice(NamedTuple):
    """A slice that comes in: which one, of which sending of which message."""

    message: int
    sending: int
    index: int
    count: int
    record: SourceFields


class Outputs(NamedTuple):
    """What a batch of a shard put out, and what it says that everybody is charged for by then."""

    values: tuple[tuple[Any, int], ...]
    """Values and timestamps."""
    usage: Usage


def _passed(chain: Sequence[Interceptor], record: SinkFields, now_ms: int, shard: int = 0) -> list[SinkFields]:
    """Return what comes out of a query that only hands on, around which the interceptors are."""
    topic, timestamp_ms, key, value, header_bytes = record
    task = Task(_handing_on(chain), shard, {}, TaskRecordContext(-1, now_ms))
    task.process(iter([(topic, 0, 0, timestamp_ms, key, value, header_bytes)]))
    task.end_batch(now_ms)
    task.close()
    return task.outputs


def _handing_on(chain: Sequence[Interceptor], *, keeps: bool = False) -> Topology:
    topology, last = Topology(), "source"
    topology.add_source("source", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    if keeps:
        last = "keeping"
        topology.add_processor(last, _Keeping, ["source"])
        supplier = Stores.persistent_timestamped_key_value_store_with_headers("kept")
        kept = Stores.timestamped_key_value_store_with_headers_builder(supplier, Serdes.bytes(), Serdes.bytes())
        topology.add_state_store(kept.with_expiry_header("until"), last)
    topology.add_sink("sink", "messages", [last], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    return topology.with_interceptors(Chain(chain))


class _Keeping(Processor):
    """Keeps the last message of each kind, and forwards each one, and the numbers of all that are kept by then."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._kept: Any = context.state_store("kept")

    def process(self, record: Record[Any, Any]) -> None:
        number = _number_in(record.value)
        held = ValueTimestampHeaders(b"%d" % number, record.timestamp_ms, record.headers)
        self._kept.put(_place(number), held)
        found = [self._kept.get(_place(kind)) for kind in range(_KINDS)]
        self._context.forward(record)
        self._context.forward(record.with_value(b"kept " + b" ".join(each.value for each in found if each is not None)))


def _number_in(value: bytes) -> int:
    return int(value.partition(b" ")[0])


def _place(number: int) -> bytes:
    return b"kind %d" % (number % _KINDS)


@dataclass(frozen=True)
class Guarded(Workload):
    """Messages through middleware that keeps state."""

    @property
    def clock(self) -> str:
        return CLOCKS[self.seed // 2 % len(CLOCKS)]

    def topology(self) -> Topology:
        """Return the query, as a process that has it for itself."""
        signing = Signing(
            _RING,
            sign=False,
            unsigned=(),  # who is charged is told by a header
            window_ms=WINDOW_MS,
            ahead_ms=AHEAD_MS,
            clock=self.clock,
            refuse_replays=True,
        )
        return _handing_on([Chargeback(), signing, Slicing(None, timeout=TIMEOUT_MS)], keeps=True)

    @property
    def always_writes(self) -> bool:
        return False  # records are refused

    @property
    def specs(self) -> tuple[StoreSpec, ...]:
        return _specs()

    @property
    def in_memory(self) -> frozenset[str]:
        return frozenset()

    def records(self, batch: str, shard: int, shards: int) -> list[Slice]:  # type: ignore[override]
        """Return the slices that come in a batch. By which checkpoint it is planned decides only what gets lost."""
        return _received(self.seed, shard, batch)

    def run(
        self, held: Held, batch: str, place: tuple[int, int], attempt: str = "", memory: dict[str, Any] | None = None
    ) -> tuple[BatchEnd, Outputs]:
        # A Python worker has the interceptors of one topology in its memory, batch after batch.
        topology = self.topology() if memory is None else memory.setdefault("guarded", self.topology())
        now_ms = BATCH_MS * batch_number(batch)
        context = TaskRecordContext(held.stream_time_ms, now_ms)

        def backing(name: str) -> StoreBacking:
            changelog = None if held.changelogs is None else held.changelogs[name]
            return StoreBacking(held.stores[name], changelog, held.times_ms.get(name, NO_STREAM_TIME))

        stores = build_stores(topology, context, backing)
        task = Task(topology, place[0], stores, context, handling=_HANDLING)
        records = [arrived.record for arrived in self.records(batch, *place)]
        if self.seed % 2 and records:
            for part in task.ingest_batch(source_batch(records)):
                task.process_batch(part)
        else:
            task.process(task.ingest(records))
        task.end_batch(now_ms)
        values = tuple((value, timestamp_ms) for _, timestamp_ms, _, value, _ in task.outputs)
        with stores[USAGE_STORE].all() as entries:  # type: ignore[attr-defined]
            usage = read_usage(entries).get(NOBODY, Usage())
        return task.leave(), Outputs(values, usage)

    def problem(self, shard: int, shards: int, history: Sequence[tuple[str, Outputs]]) -> str | None:
        """Return what is wrong with what the batches of a checkpoint have put out, None if nothing is."""
        known = _Traffic(self.clock)
        emitted: dict[int, int] = {}
        kept: dict[int, int] = {}
        for place, (batch, outputs) in enumerate(history):
            known.add(batch, self.records(batch, shard, shards))
            for (value, timestamp_ms), (told, _) in zip(outputs.values[::2], outputs.values[1::2], strict=True):
                message = _number_in(value)
                if (value, timestamp_ms) != _message(self.seed, shard, message):
                    return f"message {message} is not as it was sent"
                if message in emitted:
                    return f"message {message} was accepted in {history[emitted[message]][0]}, and again in {batch}"
                if message not in known.came:
                    return f"message {message} was accepted in {batch}, and never came"
                emitted[message] = place
                kept[message % _KINDS] = message
                now_ms = BATCH_MS * batch_number(batch)
                live = [kept[kind] for kind in sorted(kept) if _expires_ms(self.seed, shard, kept[kind]) > now_ms]
                if told != b"kept " + b" ".join(b"%d" % number for number in live):
                    return f"with message {message} in {batch} {told!r} was told, and live were {live}"
            if (outputs.usage.ingoing.records, outputs.usage.outgoing.records) != (len(emitted), 2 * len(emitted)):
                return f"{len(emitted)} messages were accepted by {batch}, and charged was {outputs.usage}"
        for message in known.came:
            whole = known.whole(message)
            place = emitted.get(message)
            if place is not None and place not in whole:
                return f"message {message} was accepted in {history[place][0]}: not whole, or signed at another time"
            must = [at for at, is_sure in whole.items() if is_sure]
            if must and (place is None or place > min(must)):
                return f"message {message} was not accepted by {history[min(must)][0]}"
        return None


class _Traffic:
    """What came into a shard, batch by batch."""

    def __init__(self, clock: str) -> None:
        self.clock = clock
        self.came: dict[int, dict[int, list[int]]] = {}
        """By message and sending: in which batch each slice was that came."""
        self._counts: dict[int, int] = {}
        self._times_ms: list[int] = []
        self._latest_ms: list[int] = []
        """The highest timestamp of what came up to a batch."""

    def add(self, batch: str, arrived: Sequence[Slice]) -> None:
        """Take note of the next batch."""
        place = len(self._times_ms)
        self._times_ms.append(BATCH_MS * batch_number(batch))
        for message, sending, _, count, _ in arrived:
            self.came.setdefault(message, {}).setdefault(sending, []).append(place)
            self._counts[message] = count
        self._latest_ms.append(max(map(_made_ms, self.came), default=-1))

    def whole(self, message: int) -> dict[int, bool]:
        """Return the batches in which all slices of a sending are there, in time, and whether it must be accepted."""
        found: dict[int, bool] = {}
        for places in self.came[message].values():
            if len(places) < self._counts[message]:
                continue
            age_ms = self._times_ms[places[-1]] - _made_ms(message)
            if self.clock == "system" and not -AHEAD_MS <= age_ms <= WINDOW_MS:
                continue
            waits = pairwise(self._times_ms[place] for place in places)
            # By the time of records it may be too old beside others, which have come by then or may not be whole.
            is_late = self.clock == "record" and self._latest_ms[places[-1]] - _made_ms(message) > WINDOW_MS
            is_sure = not is_late and all(after - before < TIMEOUT_MS for before, after in waits)
            found[places[-1]] = found.get(places[-1], False) or is_sure
        return found


def _made_ms(message: int) -> int:
    # Never at a border of what is in time.
    return BATCH_MS * (message // 2) + 7


@cache
def _message(seed: int, shard: int, message: int) -> tuple[bytes, int]:
    rng = random.Random(f"message {seed} {shard} {message}")
    return b"%d " % message + rng.randbytes(rng.choice((20, 300, 600))), _made_ms(message)


def _expires_ms(seed: int, shard: int, message: int) -> float:
    """Return when a message expires, never at the time of a batch."""
    batches = random.Random(f"until {seed} {shard} {message}").choice((2, 4, 8, inf))
    return _made_ms(message) + BATCH_MS * batches


@cache
def _sent(seed: int, shard: int, message: int) -> tuple[tuple[SinkFields, ...], ...]:
    """Return the slices of each sending of a message."""
    value, made_ms = _message(seed, shard, message)
    expires_ms = _expires_ms(seed, shard, message)
    headers = Headers([("t", b"1"), *([] if expires_ms == inf else [("until", expiry_value(int(expires_ms)))])])
    made = "messages", made_ms, b"k%d" % shard, value, headers.to_bytes()
    # Two of one millisecond are told apart by their serial numbers, which begin anew in each batch of a sender.
    (signed,) = _passed([Signing(_RING, unsigned=())], made, made_ms, 2 * shard + message % 2)
    sendings = random.Random(f"sendings {seed} {shard} {message}").choice((1, 1, 2, 3))
    return tuple(
        tuple(_passed([Slicing(_SLICE_BYTES, glue=False)], signed, made_ms + sending)) for sending in range(sendings)
    )


@cache
def _received(seed: int, shard: int, batch: str) -> list[Slice]:
    number = batch_number(batch)
    rng = random.Random(f"order {seed} {number} {shard}")
    arrived = list(_arriving(seed, shard, number))
    rng.shuffle(arrived)
    lost = random.Random(f"lost {seed} {batch} {shard}")
    return [each for each in arrived if lost.random() >= 0.08]


@cache
def _arriving(seed: int, shard: int, number: int) -> tuple[Slice, ...]:
    """Return what comes in the batch of a number, whoever plans it, before any of it gets lost."""
    found = []
    for message in range(max(0, 2 * (number - _TRIES) - 4), 2 * number + 2):
        rng = random.Random(f"when {seed} {shard} {message}")
        for sending, slices in enumerate(_sent(seed, shard, message)):
            first = message // 2 + 1 + (0 if sending == 0 else rng.randrange(_TRIES - 3))
            for index, (topic, timestamp_ms, key, value, header_bytes) in enumerate(slices):
                at = first + rng.choice((0, 0, 0, 0, 1, 1, 2, 4))
                if at == number:
                    offset = 10_000 * number + len(found)
                    record = topic, 0, offset, timestamp_ms, key, value, header_bytes
                    found.append(Slice(message, sending, index, len(slices), record))
    return tuple(found)


@cache
def _specs() -> tuple[StoreSpec, ...]:
    topology = Guarded(0, ()).topology()
    return tuple(sorted((builder.spec for builder in topology.store_builders.values()), key=lambda spec: spec.name))


SPECS.update((spec.name, spec) for spec in _specs())
GUARDED_STORES: Final = tuple(spec.name for spec in _specs())
