"""What a task of the sink does with Kafka, on a real broker and without Spark's JVM, which test_kafka_sink.py has."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from statestore.errors import InputError
from statestore.errors.run import (
    BatchChangedError,
    InputCutOffError,
    KafkaTimeoutError,
    MarkerTopicError,
    SinkAheadError,
    TransactionAbortedError,
    TransactionFencedError,
)
from statestore.format.keys.partitioner import partition_column
from statestore.format.records.header_bytes import encode_headers
from statestore.headers.topic_columns import sink_batch
from statestore.middleware.schemas.schema_registry import RegisteredSchema, TopicRegistry
from statestore.middleware.schemas.schema_registry.ids import SchemaId
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.markers import Marker, MarkerKey, MarkerTopic, RunMarker
from statestore.spark.kafka_sink.partition import (
    BatchPlan,
    PartitionRows,
    PartitionWritten,
    SayEnd,
    Writer,
    parts_of,
    write_partition,
)
from statestore.spark.kafka_sink.transaction import Transaction
from statestore.spark.shards.blobs import BLOB, encode_blob
from statestore.testing.faults import FaultJournal
from statestore.testing.kafka_broker import KafkaBroker, free_ports
from tests.support.kafka.transactions import Death, MortalCluster, Query, attempt_batch, rows, seen, values, whole

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def query(broker: KafkaBroker, topic: str) -> Query:
    return Query(KafkaCluster(broker.bootstrap_servers, timeout_s=20), f"query-of-{topic}", "sink-markers")


def begun(writer: Writer, partition: int = 0) -> Transaction:
    transaction = writer.take_over(writer.transactional_id(partition))
    transaction.begin()
    return transaction


def test_a_partition_is_written_with_its_marker_and_not_again(query: Query, topic: str) -> None:
    batch = rows(topic, b"1", b"2", b"3")
    written = write_partition(query.plan(0), 1, whole(batch, batch.slice(1)))
    assert (written.records, written.was_there) == (5, False)
    again = iter(whole(batch, batch.slice(1)))
    assert write_partition(query.plan(0), 1, again) == PartitionWritten(1, 5, "plan:0", True, -1)
    assert next(again, "taken") == "taken"
    assert values(query.cluster.servers, topic) == [b"1", b"2", b"3", b"2", b"3"]
    assert query.found().markers == {1: Marker(0, 2, 5, "plan:0")}


def test_the_next_batch_need_not_read_the_log_of_markers(query: Query, topic: str) -> None:
    first = write_partition(query.plan(0), 0, whole(rows(topic, b"1")))
    known = query.plan(1, markers={0: Marker(0, 2, 1, "plan:0")}, read_to={0: first.read_to})
    write_partition(known, 0, whole(rows(topic, b"2")))
    assert write_partition(known, 0, whole(rows(topic, b"2"))).was_there
    assert values(query.cluster.servers, topic) == [b"1", b"2"]


def test_records_are_written_as_they_are(query: Query) -> None:
    topic = "sink-records"
    query.cluster.create_topic(topic, 5, {})
    keys = [None, b"", *(f"key-{number}".encode() for number in range(40))]
    headers = [("tenant", b"eu"), ("tenant", None), ("größe", b"")]
    records = [(key, None if number % 3 == 0 else b"v", 1_000 + number) for number, key in enumerate(keys)]
    batch = rows(topic, *records, (b"placed", b"v", 7, 3, headers), (b"now", b"v"))
    write_partition(query.plan(0), 0, whole(batch))
    found = {message.key(): message for message in chain(*seen(query.cluster.servers, topic, 5))}
    assert [(found[key].value(), found[key].timestamp()) for key, *_ in records] == [
        (value, (TIMESTAMP_CREATE_TIME, timestamp_ms)) for _, value, timestamp_ms in records
    ]
    placed = partition_column(pa.array(keys[1:], pa.binary()), 5).tolist()
    assert [found[key].partition() for key in keys[1:]] == placed
    assert found[b"placed"].partition() == 3
    assert found[b"placed"].headers() == headers
    assert found[b"now"].timestamp()[1] > 1_600_000_000_000


def test_partitions_that_have_no_rows_write_nothing(query: Query, topic: str) -> None:
    assert write_partition(query.plan(0), 0, whole(rows(topic))) == PartitionWritten(0, 0, "plan:0", False, -1)
    assert query.found().markers == {}
    # Also where the last marker's transaction is committed, and its end has not come to the log yet.
    late = begun(query.writer())
    late._send(query.markers, b"", b"", 0)
    late._producer.flush(30)
    behind = query.cluster.end_offsets(query.markers, [0])[0] + 1
    assert write_partition(query.plan(1, read_to={0: behind}), 0, whole(rows(topic))).records == 0
    late.close()


def test_rows_without_an_end_are_not_committed(query: Query, topic: str) -> None:
    with pytest.raises(InputCutOffError, match="partition 1"):
        write_partition(query.plan(0), 1, iter([rows(topic, b"1")]))
    assert values(query.cluster.servers, topic) == []
    write_partition(query.plan(0), 1, whole(rows(topic, b"1", b"2")))
    assert values(query.cluster.servers, topic) == [b"1", b"2"]


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
def test_the_end_is_there_if_it_was_said_twice(kept: int) -> None:
    batch = rows("t", b"1", b"2")
    said = [*SayEnd(max_rows=7)(iter([batch, batch]))]
    parts = [*parts_of(iter(said[:kept]))]
    assert parts == [batch, batch][:kept] + ([None] if kept == len(said) else [])


def test_what_stateful_leaves_packed_are_rows() -> None:
    headers: list[Any] = [("tenant", b"eu"), ("tenant", None)]
    blob = encode_blob([sink_batch(["t", "t"], [5, 0], [b"k", None], [None, b"v"], [encode_headers(headers), b""])])
    packed = pa.record_batch([pa.array([None, blob, blob], pa.binary())], names=[BLOB])
    (first, again, end) = parts_of(SayEnd(max_rows=7)(iter([packed])))
    expected = rows("t", (b"k", None, 5, None, headers), (None, b"v", 0, None, []))
    assert (first, end) == (again, None)
    assert first.select(sorted(first.schema.names)).to_pylist() == [
        {name: value for name, value in sorted(row.items()) if name != "partition"} for row in expected.to_pylist()
    ]


def test_what_spark_collects_is_bounded() -> None:
    large = rows("t", bytes(9 << 20))
    said = [*SayEnd(max_rows=7)(iter([large] * 4))]
    assert [part.num_rows for part in said] == [1, 1, 7, 1, 1, 7, 1, 1]
    assert sum(part is not None for part in parts_of(iter(said))) == 4


def test_an_attempt_that_is_late_is_fenced(query: Query, topic: str) -> None:
    late = begun(query.writer())
    late.add(rows(topic, b"late"))
    write_partition(query.plan(0), 0, whole(rows(topic, b"1")))
    with pytest.raises(TransactionFencedError, match=r"query-of-.*//0.*Nothing of it counts"):
        late.commit(b"", b"", [0])
    late.close()
    assert values(query.cluster.servers, topic) == [b"1"]


def test_a_fatal_error_that_the_client_loses_is_found(query: Query, topic: str) -> None:
    late = begun(query.writer())
    late.add(rows(topic, b"late"))
    with pytest.raises(SystemError, match="nothing fatal"), late._errors("trying"):
        raise SystemError("nothing fatal")
    write_partition(query.plan(0), 0, whole(rows(topic, b"1")))
    with pytest.raises(TransactionFencedError):
        late.commit(b"", b"", [0])
    with pytest.raises(TransactionFencedError), late._errors("trying"):
        raise SystemError("returned NULL without setting an exception")
    late.close()


def test_an_attempt_that_comes_when_another_one_is_half_way_takes_over(query: Query, topic: str) -> None:
    def overtaken() -> Iterator[pa.RecordBatch | None]:
        yield rows(topic, b"1")
        write_partition(query.plan(0), 0, whole(rows(topic, b"1", b"2")))
        yield rows(topic, b"2")
        yield None

    with pytest.raises(TransactionFencedError):
        write_partition(query.plan(0), 0, overtaken())
    assert write_partition(query.plan(0), 0, whole(rows(topic, b"1", b"2"))).was_there
    assert values(query.cluster.servers, topic) == [b"1", b"2"]


def test_a_marker_behind_an_open_transaction_is_waited_for(query: Query, topic: str) -> None:
    shared = replace(query, markers="sink-markers-shared")
    MarkerTopic.of(query.cluster, shared.markers, 1)
    held = begun(shared.writer(), 2)
    write_partition(shared.plan(0), 3, whole(rows(topic, b"1")))
    # As a task that has sent its marker and dies, before another one has.
    held._send(shared.markers, b"held", b"k")
    held._producer.flush(30)
    waiting = replace(shared, cluster=replace(query.cluster, timeout_s=2))
    plan = waiting.plan(0)
    with pytest.raises(KafkaTimeoutError, match="may be open"):
        write_partition(plan, 3, whole(rows(topic, b"1")))
    held.close()
    assert write_partition(shared.plan(0), 3, whole(rows(topic, b"1"))).was_there
    assert values(query.cluster.servers, topic) == [b"1"]


def test_batches_may_have_different_numbers_of_partitions(query: Query, topic: str) -> None:
    for batch_id, partitions in enumerate((4, 1, 4)):
        for partition in range(partitions):
            for was_there in (False, True):
                plan = query.plan(batch_id, partitions=partitions)
                text = b"%d-%d" % (batch_id, partition)
                assert write_partition(plan, partition, whole(rows(topic, text))).was_there is was_there
    expected = [b"0-0", b"0-1", b"0-2", b"0-3", b"1-0", b"2-0", b"2-1", b"2-2", b"2-3"]
    assert values(query.cluster.servers, topic) == expected


def test_a_batch_that_changed_or_is_older_than_what_is_there_is_refused(query: Query, topic: str) -> None:
    write_partition(query.plan(3), 0, whole(rows(topic, b"1", b"2")))
    with pytest.raises(BatchChangedError, match="has 1 records, and had 2"):
        write_partition(query.plan(3), 0, whole(rows(topic, b"1")))
    with pytest.raises(BatchChangedError, match="has 4 partitions, and had 2"):
        write_partition(query.plan(3, partitions=4), 0, whole(rows(topic, b"1", b"2")))
    with pytest.raises(SinkAheadError, match=r"batch 2 of query .* batch 3 is in Kafka already"):
        write_partition(query.plan(2), 0, whole(rows(topic, b"1", b"2")))
    with pytest.raises(SinkAheadError, match=r"batch 3 is in Kafka already, by another plan"):
        write_partition(query.plan(3, digest="plan:another"), 0, whole(rows(topic, b"1", b"2")))
    with pytest.raises(BatchChangedError, match="has 0 records, and had 2"):
        write_partition(query.plan(3), 0, whole(rows(topic)))
    assert values(query.cluster.servers, topic) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (rows("sink-that-is-missing", b"1"), TransactionAbortedError, "nknown"),
        (rows("sink-large", (b"k", bytes(2_000_000))), TransactionAbortedError, "too large"),
        (rows("sink-large", (b"k", b"v", -1)), InputError, "before 1970"),
        (rows("sink-markers", (b"k", b"v")), InputError, "holds the sink's markers"),
        (rows(None, b"1"), InputError, "has no topic"),  # type: ignore[arg-type]
        (rows("sink-large", (b"k", b"v", 1, 0, [(None, b"v")])), InputError, "a null key"),
    ],
    ids=["topic", "size", "timestamp", "markers", "no topic", "header"],
)
def test_what_kafka_does_not_take_aborts_the_whole_partition(
    query: Query, topic: str, batch: pa.RecordBatch, error: type[Exception], words: str
) -> None:
    query.cluster.create_topic("sink-large", 1, {})
    hasty = replace(query.cluster, options={"topic.metadata.propagation.max.ms": "1000"})
    with pytest.raises(error, match=words):
        write_partition(replace(query, cluster=hasty).plan(0), 0, whole(rows(topic, b"1"), batch))
    assert values(query.cluster.servers, topic) == []
    assert not write_partition(query.plan(0), 0, whole(rows(topic, b"2"))).was_there
    assert values(query.cluster.servers, topic) == [b"2"]


def test_a_transaction_that_takes_too_long_says_so(query: Query, topic: str) -> None:
    slow = begun(query.writer(transaction_timeout_ms=1_000))
    slow.add(rows(topic, b"1"))
    slow._producer.flush(30)
    # The broker looks for such transactions every few seconds; an attempt that takes over does the same to this one.
    begun(query.writer()).close()
    with pytest.raises(TransactionFencedError, match="transaction_timeout_ms"):
        slow.commit(b"", b"", [0])


def test_a_broker_that_does_not_answer_is_an_error_in_time() -> None:
    (port,) = free_ports(1)
    cluster = KafkaCluster(f"127.0.0.1:{port}", timeout_s=1)
    with pytest.raises(KafkaTimeoutError, match="not answered within 1 s"):
        MarkerTopic.of(cluster, "markers", 1)
    writer = Writer(MarkerTopic(cluster, "markers", 1), "q", "", "statestore", 60_000)
    plan = BatchPlan(writer, "run", 0, 1, "", {}, {}, {0: 0})
    with pytest.raises(KafkaTimeoutError, match="statestore/q//0"):
        write_partition(plan, 0, whole(rows("t", b"1")))


def test_a_read_ends_at_the_end_of_each_partition(query: Query, topic: str) -> None:
    query.cluster.create_topic(f"{topic}-of-two", 2, {})
    producer = Producer({"bootstrap.servers": query.cluster.servers})
    for number in range(100):
        producer.produce(f"{topic}-of-two", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    for ends in ({0: 1, 1: 50}, {0: 50, 1: 1}):
        found = query.cluster.read(f"{topic}-of-two", {0: 0, 1: 0}, ends)
        assert Counter(record.partition for record in found) == ends


def test_a_topic_that_loses_markers_is_refused(query: Query) -> None:
    query.cluster.create_topic("sink-markers-deleted", 1, {"cleanup.policy": "delete"})
    with pytest.raises(MarkerTopicError, match=r"cleanup\.policy is delete"):
        MarkerTopic.of(query.cluster, "sink-markers-deleted", 1)
    with pytest.raises(MarkerTopicError, match="are gone"):
        MarkerTopic.of(query.cluster, "sink-markers-new", 1).last_after(MarkerKey("q", "", 0), 10)


def test_a_first_batch_without_partitions_makes_the_topic_too(query: Query) -> None:
    assert MarkerTopic.of(query.cluster, "sink-markers-of-nothing", 0).partitions == 1


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_topic_that_another_one_makes_at_the_same_time_is_taken_as_it_is(query: Query, policy: str) -> None:
    class Late(KafkaCluster):
        """Where another one is faster."""

        def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> bool:
            super().create_topic(topic, 3, {"cleanup.policy": policy})
            return super().create_topic(topic, partitions, config)

    late = Late(query.cluster.servers, timeout_s=20)
    refused = pytest.raises(MarkerTopicError, match="policy is delete")
    with nullcontext() if policy == "compact" else refused:
        assert MarkerTopic.of(late, f"sink-markers-of-two-{policy}", 1).partitions == 3


@contextmanager
def group_denied(servers: str, name: str) -> Iterator[None]:
    group = ResourceType.GROUP, name, ResourcePatternType.LITERAL
    everybody = "User:*", "*", AclOperation.ALL, AclPermissionType.DENY
    admin = AdminClient({"bootstrap.servers": servers})
    denied = AclBinding(*group, *everybody)
    admin.create_acls([denied])[denied].result()
    try:
        yield
    finally:
        given_back = AclBindingFilter(*group, *everybody)
        admin.delete_acls([given_back])[given_back].result()


def test_no_rights_are_needed_for_a_group(query: Query, topic: str) -> None:
    with group_denied(query.cluster.servers, "statestore"):
        for batch_id in range(2):
            attempt_batch(query, topic, batch_id, [b"%d" % batch_id])
        assert values(query.cluster.servers, topic) == [b"0", b"1"]


def test_a_registry_in_a_topic_needs_none_either(query: Query, topic: str) -> None:
    servers = query.cluster.servers
    with group_denied(servers, f"schemas-of-{topic}"):
        registry = TopicRegistry(topic, {"bootstrap.servers": servers})
        give_up_s = time.monotonic() + 1  # by then the client has asked for the group's coordinator
        for number in count():
            added = registry.deposit("subject", RegisteredSchema(f'{{"type": "string", "doc": "{number}"}}'))
            assert registry.fetch(SchemaId("md5", added.md5)) is not None
            if time.monotonic() > give_up_s:
                break
        registry.close()


def test_properties_that_the_sink_sets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"transactional\.id"):
        KafkaCluster("localhost:1", {"transactional.id": "mine"})


def test_a_process_that_is_killed_at_any_step_leaves_each_record_once(
    query: Query, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.kafka.transactions"])
    # The run's own steps are the first, then it takes two partitions over, and then the task comes.
    of_run, of_task = {"init": 2, "begin": 1, "commit": 1}, {"init": 4, "begin": 2, "produce": 1, "commit": 2}
    moments = [
        (step, when, occurrence)
        for steps in (of_run, of_task)
        for step, occurrence in steps.items()
        for when in ("before", "after")
    ]
    expected = []
    attempt_batch(query, topic, 0, [])
    for batch_id, moment in enumerate(moments):
        journal = FaultJournal(tmp_path / str(batch_id))
        cluster = MortalCluster(broker.bootstrap_servers, timeout_s=20, deaths=(Death(journal, *moment),))
        batch = [b"%d-%d" % (batch_id, number) for number in range(6)]
        attempt = context.Process(target=attempt_batch, args=(replace(query, cluster=cluster), topic, batch_id, batch))
        attempt.start()
        attempt.join(60)
        assert attempt.exitcode == -9
        assert journal.notes("struck") == [[*moment[:2]]]
        attempt_batch(query, topic, batch_id, batch)
        expected += batch
    assert values(query.cluster.servers, topic) == expected


def test_markers_are_those_of_the_golden_file() -> None:
    golden = json.loads((GOLDEN / "markers.json").read_text(encoding="utf-8"))
    keys = [MarkerKey("5f1c58ab-5dd5-4b0c-9bd4-6a9a2f6a4c3e", "", 0), MarkerKey("größe", "alerts", 7)]
    markers = [Marker(12, 8, 250_000, f"plan:{'0f' * 32}"), Marker(0, 8, 1, f"records:{'a0' * 16}")]
    written = [(key.to_bytes(), marker.to_bytes()) for key, marker in zip(keys, markers, strict=True)]
    run_key, run = MarkerKey("größe", "alerts"), RunMarker("d2" * 16, 8)
    written.append((run_key.to_bytes(), run.to_bytes()))
    assert written == [(entry["key"].encode(), entry["value"].encode()) for entry in golden["version 2"]]
    assert [MarkerKey.from_bytes(key) for key, _ in written] == [*keys, run_key]
    assert [Marker.from_bytes(value) for _, value in written[:2]] == markers
    assert RunMarker.from_bytes(written[2][1]) == run
    earlier = [(MarkerKey.from_bytes(entry["key"].encode()), entry["value"].encode()) for entry in golden["version 1"]]
    assert [key for key, _ in earlier] == keys
    assert [Marker.from_bytes(value) for _, value in earlier] == [replace(marker, digest="") for marker in markers]


@pytest.mark.parametrize(
    ("kept", "digest"),
    [(slice(0, 4), "33488d3924e69ae2959f55cab69c1056"), (slice(1, 3), "408411eaa48e74c9e2f4d8ecf3960beb")],
)
def test_digests_of_records_stay_as_they_were(kept: slice, digest: str) -> None:
    batch = rows(
        "out",
        (b"a", None, None, None, [("a", b"1"), ("a", None)]),
        (None, b"1", 0, 3),
        (b"", b"", 1_700_000_000_000, 0, []),
        ("é".encode(), b"x" * 300, 5, 1, [("é", b"")]),
    )
    taken = PartitionRows()
    for row in range(batch.num_rows)[kept]:
        taken.add(batch.slice(row, 1), with_digest=True)
    at_once = PartitionRows()
    at_once.add(batch[kept], with_digest=True)
    assert taken.digest == at_once.digest == f"records:{digest}"


@pytest.mark.parametrize(
    "data",
    [
        *(None, b"", b"{", b"[]", b"7", b"\xff", b'{"version":2,"batch":1,"partitions":1,"records":1}'),
        *(b'{"version":3,"batch":1,"partitions":1,"records":1,"digest":""}', b'{"version":2,"partitions":1,"run":1}'),
        *(b'{"version":1,"batch":true,"partitions":1,"records":1}', b'{"version":2,"partitions":-1,"run":"r"}'),
        *(b'{"version":1}', b'{"version":1,"batch":-1,"partitions":1,"records":1}', b"[" * 100_000),
        *(b'{"version":1,"batch":"1","partitions":1,"records":1}', b'{"version":1,"batch":1.5,"partitions":1}'),
    ],
)
def test_what_is_no_marker_is_told(data: bytes | None) -> None:
    assert MarkerKey.from_bytes(data) is None
    for kind in (Marker, RunMarker):
        with pytest.raises(ValueError, match="marker"):
            kind.from_bytes(data)
    assert MarkerKey.from_bytes(b'{"query": "q", "writer": "", "partition": 1}') is None
