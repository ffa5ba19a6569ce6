"""A stack of middleware around one query, from Kafka to Kafka: traced, signed, compressed, sliced, encrypted, in Avro.

    shop --orders--> the query: totals in state --totals--> billing, which reads them; an auditor, who may not

Run with `make demo-middleware`. It starts a broker of its own, and stops it. The shop, billing and the auditor are
plain clients of Kafka, each with a chain; the query has the same one, and its processor knows nothing of it.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import middleware_company
from demo_session import demo_session
from middleware_company import ORDER, SLICE_BYTES, TOTAL, Company
from statestore import ConsumerRecord, Headers, ProducerRecord
from statestore.headers import ExtendedDeserializer, ExtendedSerializer
from statestore.middleware import DeadLetters, FailureHandling
from statestore.middleware.lineage.tracing import TRACEPARENT
from statestore.middleware.schemas.schema_registry import IdPlace, avro_serde
from statestore.middleware.security.encryption import Encryption
from statestore.middleware.size.compression import Compression
from statestore.middleware.size.slicing import Slicing
from statestore.processor.chain_client import ChainClient
from statestore.spark import read_store, recommended_settings, stateful
from statestore.spark.kafka_sink import KafkaCluster
from statestore.testing.jars import connector_jars
from statestore.testing.kafka_broker import KafkaBroker

PARTITIONS = 2
CUSTOMERS = ("ada", "grace", "edsger")
ORDERS = 30
SCAN_BYTES = 120_000
MARKER = "to be read by nobody else"
TOPICS = {"orders": PARTITIONS, "totals": PARTITIONS, "schemas": 1, "dead": 1, "audit": 1}
CORES = 2
SETTINGS = recommended_settings(cores=CORES)


class Sent(NamedTuple):
    """An order, and the trace that it began."""

    customer: str
    amount: int
    scan: bytes
    trace: str


def send_orders(
    company: Company, client: ChainClient, orders: Sequence[tuple[str, int, bytes]]
) -> Iterator[tuple[Sent, list[Any]]]:
    """Yield orders as the shop would send them: each with the records that it takes."""
    serializer = ExtendedSerializer(avro_serde(company.registry, ORDER, place=IdPlace.MD5))
    for customer, amount, scan in orders:
        headers = Headers()
        value = {"amount": amount, "note": f"{MARKER} " * 40, "scan": scan}
        data = serializer.serialize("orders", headers, value)
        record = ProducerRecord(
            "orders", key=customer.encode(), value=data, timestamp_ms=1_700_000_000_000, headers=headers
        )
        records = client.emit(record)
        traceparent = records[0].headers.last_header(TRACEPARENT)
        assert traceparent is not None
        yield Sent(customer, amount, scan, _trace_of(traceparent.value)), records


def _trace_of(traceparent: bytes | None) -> str:
    return (traceparent or b"").decode().split("-")[1]


def produce(company: Company, records: Sequence[Any]) -> None:
    """Write records to their topics, in their order."""
    producer = confluent_kafka.Producer({**company.kafka, "enable.idempotence": True})
    for record in records:
        producer.produce(
            record.topic, record.value, record.key, timestamp=record.timestamp_ms or 0, headers=list(record.headers)
        )
    producer.flush(30)


def consume(company: Company, topic: str) -> Iterator[ConsumerRecord[bytes | None, bytes | None]]:
    """Yield all records of a topic."""
    own = {"group.id": "demo", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**company.kafka, **own})
    known = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in known])
    ended = 0
    while ended < len(known):
        message = consumer.poll(30)
        if message is None or message.error() is not None:
            ended += 1
            continue
        yield ConsumerRecord(
            topic,
            message.partition(),
            message.offset(),
            key=message.key(),
            value=message.value(),
            timestamp_ms=message.timestamp()[1],
            headers=message.headers() or (),
        )
    consumer.close()


def run_query(spark: SparkSession, company: Company, home: Path) -> None:
    """Run the query until it has processed all that is in the topic."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", company.kafka["bootstrap.servers"])
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", 40)
        .options(**SETTINGS.source.as_options())
        .load()
    )
    rows = stateful(
        records,
        company.topology(),
        shards=PARTITIONS,
        state_location=home / "state",
        local_dir=str(home / "local"),
        interceptors=company.chain("query", home / "spans"),
        failures=FailureHandling(dead_letters="dead"),
    )
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", company.kafka["bootstrap.servers"])
        .option("checkpointLocation", str(home / "checkpoint"))
        .options(**SETTINGS.sink.as_options())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


class Outcome(NamedTuple):
    """What came out of it, for the checks."""

    sent: list[Sent]
    read: list[tuple[str, int, bytes, str]]
    """Customer, total, scan and trace of each total, as billing reads them."""
    verified: int
    """How many totals the auditor has verified."""
    legible: int
    """How many of them the auditor could read."""
    audited: list[str]
    """Why records went to the audit topic."""
    dead: list[str]
    """What dead letters were refused for."""
    spans: Counter[str]
    kept: list[bytes]
    """What the store holds for each customer, as bytes."""


def run(spark: SparkSession, broker: KafkaBroker, home: Path, seed: int = 7) -> Outcome:
    """Send orders, stop the query in the middle of a message, go on, and look at both sides."""
    (home / "spans").mkdir()
    company, rng = Company(broker.bootstrap_servers), random.Random(seed)
    for topic, partitions in TOPICS.items():
        KafkaCluster(broker.bootstrap_servers).create_topic(topic, partitions, {})
    orders = [
        (rng.choice(CUSTOMERS), rng.randint(1, 500), rng.randbytes(SCAN_BYTES if number % 5 == 4 else 10))
        for number in range(ORDERS)
    ]
    with ChainClient(company.chain("shop", home / "spans")) as shop:
        made = list(send_orders(company, shop, orders))
    records = [record for _, parts in made for record in parts]
    middle = 1 + next(place for place in range(len(records) // 2, len(records)) if _is_sliced(records, place))
    produce(company, records[:middle])
    with ChainClient(company.chain("guest", home / "spans")) as guest:
        ((_, denied),) = send_orders(company, guest, [("mallory", 1_000_000, b"")])
    forged = records[0].copy(value=_flipped(records[0].value))
    produce(company, [*denied, forged])
    run_query(spark, company, home)

    shutil.rmtree(home / "local")
    produce(company, records[middle:])
    run_query(spark, company, home)

    read, verified, legible = read_totals(company)
    kept = read_store(spark, "totals", checkpoint_location=home / "checkpoint", state_location=home / "state")
    return Outcome(
        [sent for sent, _ in made],
        read,
        verified,
        legible,
        [_reason(record) for record in consume(company, "audit")],
        [_reason(record) for record in consume(company, "dead")],
        count_spans(home / "spans"),
        [bytes(row.value) for row in kept.collect()],
    )


def _is_sliced(records: Sequence[Any], place: int) -> bool:
    """Whether a record is the first slice of several."""
    return (
        place + 1 < len(records)
        and records[place].headers.last_header(TRACEPARENT) is not None
        and (records[place + 1].headers.last_header(TRACEPARENT) is None)
    )


def _flipped(value: bytes | None) -> bytes:
    assert value
    return bytes([value[0] ^ 1]) + value[1:]


def _reason(record: ConsumerRecord[bytes | None, bytes | None]) -> str:
    found = record.headers.last_header(DeadLetters.EXCEPTION_CLASS_NAME)
    return "" if found is None or found.value is None else found.value.decode().rpartition(".")[2]


def read_totals(company: Company) -> tuple[list[tuple[str, int, bytes, str]], int, int]:
    """Return the totals as billing reads them, and how many the auditor verifies and can read, who has no AES key."""
    deserializer = ExtendedDeserializer(avro_serde(company.registry, TOTAL, place=IdPlace.MD5))
    billing = [Compression(), Encryption(company.values), company.signing(), Slicing(SLICE_BYTES)]
    auditor = [company.signing(), Slicing(SLICE_BYTES)]
    read, verified, legible = [], 0, 0
    curious = ChainClient([Compression()], on_refusal=lambda *_: None)
    with ChainClient(billing) as reads, ChainClient(auditor) as verifies, curious as looks:
        for came in consume(company, "totals"):
            for record in reads.ingest(came.copy()):
                total = deserializer.deserialize("totals", record.headers, record.value)
                traceparent = record.headers.last_header(TRACEPARENT)
                trace = "" if traceparent is None else _trace_of(traceparent.value)
                read.append(((record.key or b"").decode(), total["total"], total["scan"], trace))
            for record in verifies.ingest(came.copy()):
                verified += 1
                legible += any(MARKER.encode() in (seen.value or b"") for seen in looks.ingest(record))
    return read, verified, legible


def count_spans(spans: Path) -> Counter[str]:
    """Return how many spans of each name there are."""
    lines = (line for path in spans.iterdir() for line in path.read_text(encoding="utf-8").splitlines())
    return Counter(json.loads(line)["name"] for line in lines if line.strip())


def expected_totals(sent: Sequence[Sent]) -> list[tuple[str, int, bytes, str]]:
    """Return what must come out, by a plain fold."""
    totals: Counter[str] = Counter()
    expected = []
    for order in sent:
        totals[order.customer] += order.amount
        expected.append((order.customer, totals[order.customer], order.scan, order.trace))
    return expected


def checks(outcome: Outcome) -> dict[str, bool]:
    """Return what must be true at the end, in words."""
    return {
        f"{len(outcome.sent)} totals, each in the trace of its order": sorted(outcome.read)
        == sorted(expected_totals(outcome.sent)),
        "the auditor verifies all of them, and reads none": (outcome.verified, outcome.legible)
        == (len(outcome.sent), 0),
        "what the guest sent went to the audit topic": outcome.audited == ["AccessDeniedError"],
        "what was forged became a dead letter": outcome.dead == ["SignatureRefusedError"],
        "state holds each customer's total, as ciphertext": len(outcome.kept) == len(CUSTOMERS)
        and all(MARKER.encode() not in value for value in outcome.kept),
        "spans of each step, in both services": {"send orders", "poll orders", "process orders", "send totals"}
        <= set(outcome.spans),
    }


def main() -> int:
    """Run the demo; return 0 if all is as it must be, 1 if not."""
    started = time.monotonic()
    # Python workers do not know this directory: what is in it travels with the query. A package would be installed.
    cloudpickle.register_pickle_by_value(middleware_company)
    print("== Starting Kafka and Spark.", flush=True)
    with tempfile.TemporaryDirectory(prefix="statestore-demo-") as directory, KafkaBroker() as broker:
        spark = demo_session(
            "statestore middleware demo", SETTINGS.session.as_options(), cores=CORES, jars=connector_jars()
        )
        outcome = run(spark, broker, Path(directory))
        spark.stop()
    found = checks(outcome)
    for what, right in found.items():
        print(f"{'right' if right else 'WRONG'}: {what}")
    print(f"spans: {dict(sorted(outcome.spans.items()))}")
    print(f"\nDone in {time.monotonic() - started:.0f} s.")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
