"""The program of docs/kafka-changelogs.md in stages: what it reads, run in Kafka Streams, and a model of its stores."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import Producer

from tests.support.java.program import PROGRAMS, run_java_program
from upgrade_tools.changelogs.cluster import Cluster

APPLICATION, INPUT, OUTPUT = "purchases", ("customers", "orders"), "slow-counts"
OWN_TOPICS = tuple(
    f"{APPLICATION}-{topic}"
    for topic in (
        "by-product-repartition",
        "joined-subscription-registration-topic",
        "joined-subscription-response-topic",
    )
)
LEG: Final = 40
_MINUTE_MS = 60_000
_WAIT_S = 120


class Change(NamedTuple):
    """A record of an input topic."""

    topic: str
    key: str
    value: str | None
    timestamp_ms: int


def drawn_changes(legs: int, begin_ms: int) -> list[Change]:
    """Return changes of orders and customers, LEG for each leg: some are deleted, some orders' customers are unknown.

    An order changes once a leg: of a key that changes again too soon, Kafka Streams may keep an old result (ADR 37).
    """
    random, changes = Random(5), []
    for number in range(legs * LEG):
        timestamp_ms = begin_ms + 2_000 * number
        if random.random() < 0.3:
            name = random.choice((f"name-{number}", None))
            changes.append(Change("customers", random.choice("abcd"), name, timestamp_ms))
        else:
            order = f"{random.choice('abcde')}:{random.choice(('pen', 'cup', 'größe'))}"
            value = None if random.random() < 0.2 else order
            changes.append(Change("orders", str(number % LEG), value, timestamp_ms))
    return changes


@dataclass
class Purchases:
    """What the stores that a user sees hold after some changes."""

    orders: dict[str, str] = field(default_factory=dict)
    customers: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    minutes: Counter[tuple[str, int]] = field(default_factory=Counter)

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Purchases:
        """Return the model of these changes."""
        model = cls()
        for topic, key, value, timestamp_ms in changes:
            table = model.orders if topic == "orders" else model.customers
            table.pop(key, None)
            if value is not None:
                table[key] = value
                if topic == "orders":
                    product = value.split(":")[1]
                    model.counts[product] += 1
                    model.minutes[product, timestamp_ms // _MINUTE_MS * _MINUTE_MS] += 1
        return model

    @property
    def joined(self) -> dict[str, str]:
        """Each order whose customer is known, with the customer's name."""
        named = {key: (order, self.customers.get(order.split(":")[0])) for key, order in self.orders.items()}
        return {key: f"{order}:{name}" for key, (order, name) in named.items() if name is not None}


def send(servers: str, changes: Iterable[Change]) -> None:
    """Append changes to their topics."""
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for topic, key, value, timestamp_ms in changes:
        producer.produce(topic, value, key=key, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


@contextmanager
def running_in_kafka_streams(servers: str, home: Path) -> Iterator[None]:
    """Run the application in real Kafka Streams, and stop it at the end, when it has processed all there is."""
    cluster, stop = Cluster(servers), home / "stop"
    home.mkdir()
    with ThreadPoolExecutor(1) as background:
        arguments = [servers, APPLICATION, str(home / "state"), str(stop)]
        running = background.submit(run_java_program, PROGRAMS / "RunPurchases.java", *arguments, lines="")
        try:
            yield
            give_up_s = time.monotonic() + _WAIT_S
            while not _has_processed_all(cluster):
                assert not running.done(), running.result()
                assert time.monotonic() < give_up_s, "the application does not get on"
                time.sleep(0.1)
        finally:
            stop.touch()
        running.result()


def _has_processed_all(cluster: Cluster) -> bool:
    """Return whether nothing is left, in its own topics either: what it has committed was sent on before."""
    committed = cluster.committed(APPLICATION)
    topics = cluster.topics()
    if not topics.keys() >= {*INPUT, *OWN_TOPICS}:
        return False
    return all(
        committed.get(topic, {}).get(partition, 0) == ends.end_offset
        for topic in (*INPUT, *OWN_TOPICS)
        for partition, ends in enumerate(cluster.log_ends(topic, topics[topic]))
    )
