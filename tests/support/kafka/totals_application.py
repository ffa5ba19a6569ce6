"""One application twice: as RunTotals.java for Kafka Streams and as a topology for Spark; and a model of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from statestore import (
    AggregationWithHeaders,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stores,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from tests.support.headed_stores import HeadedStores
from tests.support.java.program import PROGRAMS, run_java_program

WINDOW_MS, RETENTION_MS = 10_000, 3_600_000
STORES = ("totals", "windows", "sessions", "counts", "versions")
Headers = list[tuple[str, bytes | None]]


class Amount(NamedTuple):
    """A record of the input topic."""

    customer: str
    amount: int
    timestamp_ms: int
    headers: Headers


class Sum(NamedTuple):
    """What a store holds for a key; None stands for what it does not keep."""

    value: int
    timestamp_ms: int | None
    headers: Headers | None


NOTHING = Sum(0, None, None)


class Version(NamedTuple):
    """A version of a key; `valid_to_ms` is None for the latest."""

    value: int
    timestamp_ms: int
    valid_to_ms: int | None


@dataclass
class Model:
    """What the stores must hold after some amounts; sessions are those of windows, and have no timestamp."""

    totals: dict[str, Sum] = field(default_factory=dict)
    windows: dict[tuple[str, int], Sum] = field(default_factory=dict)
    sessions: dict[tuple[str, int], Sum] = field(default_factory=dict)
    counts: dict[str, Sum] = field(default_factory=dict)
    versions: dict[str, list[Version]] = field(default_factory=dict)

    @classmethod
    def of(cls, amounts: Iterable[Amount]) -> Model:
        """Return the model of these amounts."""
        model = cls()
        puts: dict[str, dict[int, int]] = {}
        for customer, amount, timestamp_ms, headers in amounts:
            window = customer, timestamp_ms - timestamp_ms % WINDOW_MS
            total = model.totals.pop(customer, NOTHING).value + amount
            in_session = model.sessions.pop(window, NOTHING).value + amount
            if amount:
                model.totals[customer] = Sum(total, timestamp_ms, headers)
                model.sessions[window] = Sum(in_session, None, headers)
            in_window = model.windows.get(window, NOTHING).value + amount
            model.windows[window] = Sum(in_window, timestamp_ms, headers)
            model.counts[customer] = Sum(model.counts.get(customer, NOTHING).value + 1, timestamp_ms, None)
            puts.setdefault(customer, {})[timestamp_ms] = amount
        model.versions = {customer: versions for customer in puts if (versions := _versions(puts[customer]))}
        return model

    @classmethod
    def of_entries(cls, entries: dict[str, list[dict[str, Any]]]) -> Model:
        """Return what entries of the stores say, as `scan --json` prints them."""
        return cls(
            {_text(entry["key"]): _sum(entry) for entry in entries["totals"]},
            {(_text(entry["key"]), entry["start"]): _sum(entry) for entry in entries["windows"]},
            {(_text(entry["key"]), entry["start"]): _sum(entry) for entry in entries["sessions"]},
            {_text(entry["key"]): _sum(entry) for entry in entries["counts"]},
            {
                _text(entry["key"]): [
                    Version(_number(version["value"]), version["timestamp"], version["validTo"])
                    for version in entry["versions"]
                ]
                for entry in entries["versions"]
                if entry["versions"]
            },
        )


def _versions(puts: dict[int, int]) -> list[Version]:
    """Return the versions that amounts at these times make; one of 0 ends the version before it."""
    times_ms = sorted(puts)
    return [
        Version(puts[time_ms], time_ms, next_ms)
        for time_ms, next_ms in zip_longest(times_ms, times_ms[1:])
        if puts[time_ms]
    ]


def _text(key: str) -> str:
    return bytes.fromhex(key).decode()


def _number(value: str) -> int:
    return int.from_bytes(bytes.fromhex(value), "big", signed=True)


def _sum(entry: dict[str, Any]) -> Sum:
    headers = entry.get("headers")
    pairs = (
        None if headers is None else [(key, None if value is None else bytes.fromhex(value)) for key, value in headers]
    )
    return Sum(_number(entry["value"]), entry.get("timestamp"), pairs)


def send(servers: str, topic: str, amounts: Sequence[Amount]) -> None:
    """Append amounts to a topic, each to the partition of its key as Kafka's own producer places it."""
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for customer, amount, timestamp_ms, headers in amounts:
        value = Serdes.int64().serialize(amount)
        producer.produce(topic, value, key=customer.encode(), timestamp=timestamp_ms, headers=headers)
    assert producer.flush(30) == 0


def run_in_kafka_streams(
    servers: str, application_id: str, state_dir: Path, topic: str, records: int, *, protocol: str = "classic"
) -> None:
    """Run the application in real Kafka Streams until it has processed so many records, and stop it."""
    arguments = [servers, application_id, str(state_dir), topic, str(records), protocol]
    run_java_program(PROGRAMS / "RunTotals.java", *arguments, lines="")


class Totals(Processor):
    """What RunTotals.java does with a record."""

    def init(self, context: ProcessorContext) -> None:
        """Take the stores."""
        self.totals, self.windows, self.sessions, self.counts, self.versions = map(context.state_store, STORES)

    def process(self, record: Record[str, int]) -> None:
        """Add an amount to the sums of its key."""
        key, time_ms = record.key, record.timestamp_ms
        self.totals.put(key, self._sum(self.totals.get(key), record) if record.value else None)
        start_ms = time_ms - time_ms % WINDOW_MS
        self.windows.put(key, self._sum(self.windows.fetch(key, start_ms), record), start_ms)
        session = Windowed(key, start_ms, start_ms + WINDOW_MS - 1)
        held = self.sessions.fetch_session(key, session.start_ms, session.end_ms)
        in_session = (held.aggregation if held else 0) + record.value
        self.sessions.put(session, AggregationWithHeaders.make(in_session, record.headers) if record.value else None)
        count = self.counts.get(key)
        self.counts.put(key, ValueAndTimestamp.make((count.value if count else 0) + 1, time_ms))
        self.versions.put(key, record.value or None, time_ms)

    def _sum(self, before: Any, record: Record[str, int]) -> Any:
        total = (before.value if before else 0) + record.value
        return ValueTimestampHeaders.make(total, record.timestamp_ms, record.headers)


def topology() -> Topology:
    """Return the topology for Spark, whose stores are those of RunTotals.java."""
    string, int64 = Serdes.string(), Serdes.int64()
    stores = HeadedStores(string, int64)
    made = Topology()
    made.add_source("in", key_serde=string, value_serde=int64)
    made.add_processor("total", Totals, parents=["in"])
    for builder in (
        stores.key_value("totals"),
        stores.windows("windows", RETENTION_MS, WINDOW_MS),
        stores.sessions("sessions", RETENTION_MS),
        Stores.timestamped_key_value_store_builder(
            Stores.persistent_timestamped_key_value_store("counts"), string, int64
        ),
        Stores.versioned_key_value_store_builder(
            Stores.persistent_versioned_key_value_store("versions", RETENTION_MS), string, int64
        ),
    ):
        made.add_state_store(builder, "total")
    return made
