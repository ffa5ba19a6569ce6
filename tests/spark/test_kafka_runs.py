"""Runs of the sink: what a driver knows of earlier ones, and how it ends them; on a real broker, without Spark."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from statestore.errors.run import BatchChangedError, SinkAheadError, TransactionFencedError
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.markers import Marker, MarkerKey
from statestore.spark.kafka_sink.partition import BatchPlan, PartitionWritten, look_at_partition, write_partition
from statestore.spark.kafka_sink.run import WriterRun
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.kafka.transactions import Query, rows, values, whole


@pytest.fixture
def query(broker: KafkaBroker, topic: str) -> Query:
    return Query(KafkaCluster(broker.bootstrap_servers, timeout_s=20), f"query-of-{topic}", f"markers-of-{topic}")


def run_of(query: Query) -> WriterRun:
    return WriterRun(query.writer(), query.partitions)


def write(plan: BatchPlan, topic: str, *values_of_partitions: tuple[bytes, ...]) -> list[PartitionWritten]:
    return [
        write_partition(plan, partition, whole(rows(topic, *texts)))
        for partition, texts in enumerate(values_of_partitions)
    ]


def old_marker(query: Query, partition: int, batch: int, records: int) -> tuple[bytes, bytes]:
    """A marker as earlier releases wrote it."""
    value = b'{"version":1,"batch":%d,"partitions":%d,"records":%d}' % (batch, query.partitions, records)
    return MarkerKey(query.name, "", partition).to_bytes(), value


def test_a_run_knows_what_earlier_ones_have_written_and_its_tasks(query: Query, topic: str) -> None:
    first = run_of(query)
    plan = first.plan(0, 2, {0: "plan:a"}.get)
    first.note(plan, write(plan, topic, (b"1",), (b"2", b"3")))
    assert first.plan(1, 2, {1: "plan:b"}.get).markers == {0: Marker(0, 2, 1, "plan:a"), 1: Marker(0, 2, 2, "plan:a")}
    again = run_of(query).plan(0, 2, {0: "plan:a"}.get)
    assert again.is_repeat
    assert [written.was_there for written in write(again, topic, (b"1",), (b"2", b"3"))] == [True, True]
    assert values(query.cluster.servers, topic) == [b"1", b"2", b"3"]


def test_a_plan_that_kafka_knows_otherwise_is_refused_before_any_task(query: Query, topic: str) -> None:
    first = run_of(query)
    write(first.plan(4, 2, {4: "plan:a"}.get), topic, (), (b"1",))
    run = run_of(query)
    with pytest.raises(SinkAheadError, match="batch 3 of query"):
        run.plan(3, 2, {3: "plan:0"}.get)
    with pytest.raises(SinkAheadError, match=r"batch 4 .*by another plan"):
        run.plan(4, 2, {4: "plan:b"}.get)
    with pytest.raises(BatchChangedError, match="has 1 partitions, and had 2"):
        run.plan(4, 1, {4: "plan:a"}.get)
    with pytest.raises(BatchChangedError, match="can't"):
        run.plan(4, 2, {}.get)
    with pytest.raises(SinkAheadError, match=r"batch 5 .* batch 4 is in Kafka already, by another plan"):
        run.plan(5, 2, {4: "plan:b", 5: "plan:c"}.get)
    assert not run.plan(5, 2, {4: "plan:a", 5: "plan:b"}.get).is_repeat


def test_rows_that_come_in_another_partition_are_seen_before_they_are_written(query: Query, topic: str) -> None:
    write_partition(run_of(query).plan(0, 2, {0: "plan:a"}.get), 0, whole(rows(topic, b"1", b"2")))
    plan = run_of(query).plan(0, 2, {0: "plan:a"}.get)
    with pytest.raises(BatchChangedError, match="partition 0 has 0 records, and had 2"):
        look_at_partition(plan, 0, whole(rows(topic)))
    look_at_partition(plan, 1, whole(rows(topic, b"1", b"2")))
    assert values(query.cluster.servers, topic) == [b"1", b"2"]


def test_without_a_plan_a_partition_is_known_by_its_records_in_any_order(query: Query, topic: str) -> None:
    written = rows(topic, (b"k", b"1", 5, None, [("h", b"x")]), (None, b"2"), (b"k", b"2"))
    write_partition(run_of(query).plan(0, 2, {}.get), 0, whole(written))
    plan = run_of(query).plan(0, 2, {}.get)
    for same in ([2, 0, 1], [0, 2, 1]):
        look_at_partition(plan, 0, whole(written.take(same)))
        assert write_partition(plan, 0, whole(written.take(same))).was_there
    others = [
        rows(topic, (b"k", b"1", 5, None, [("h", b"y")]), (None, b"2"), (b"k", b"2")),
        rows(topic, (b"k", b"1", 5, None, [("h", b"x")]), (b"", b"2"), (b"k", b"2")),
        rows(topic, (b"k", b"1", 6, None, [("h", b"x")]), (None, b"2"), (b"k", b"2")),
    ]
    for step, other in product((look_at_partition, write_partition), others):
        with pytest.raises(BatchChangedError, match="partition 0 has other records than it had"):
            step(plan, 0, whole(other))
    # A run that Spark tells its plan can still compare what one that was not told has written.
    asking = run_of(query).plan(0, 2, {0: "plan:a"}.get)
    assert write_partition(asking, 0, whole(written)).was_there
    with pytest.raises(BatchChangedError):
        write_partition(asking, 0, whole(others[0]))


def test_what_an_earlier_run_has_begun_is_ended_also_in_partitions_that_there_are_no_more(
    query: Query, topic: str
) -> None:
    earlier = run_of(query).plan(0, 5, {0: "plan:a"}.get)
    begun = [earlier.writer.take_over(earlier.writer.transactional_id(partition)) for partition in range(5)]
    for transaction in begun:
        transaction.begin()
        transaction.add(rows(topic, b"late"))
    later = WriterRun(query.writer(), 1)
    for partition, transaction in enumerate(begun):
        with pytest.raises(TransactionFencedError):
            transaction.commit(query.writer().key(partition).to_bytes(), b"", [0])
        transaction.close()
    write(later.plan(0, 1, {0: "plan:a"}.get), topic, (b"1",))
    assert values(query.cluster.servers, topic) == [b"1"]


def test_tasks_of_an_earlier_run_that_begin_later_write_nothing(query: Query, topic: str) -> None:
    earlier = run_of(query)
    plan = earlier.plan(0, 2, {0: "plan:a"}.get)
    run_of(query)
    for texts in ((b"late",), ()):
        with pytest.raises(TransactionFencedError, match="another run of the query has begun"):
            write_partition(plan, 1, whole(rows(topic, *texts)))
    with pytest.raises(TransactionFencedError, match="another run of the query has begun"):
        earlier.plan(1, 8, {1: "plan:b"}.get)
    assert values(query.cluster.servers, topic) == []


def test_a_query_goes_on_from_markers_of_version_1_also_in_a_batch_that_was_written_in_part(
    query: Query, topic: str
) -> None:
    for partition, batch, texts in ((0, 6, (b"6",)), (1, 6, (b"6",)), (0, 7, (b"7", b"7"))):
        task = query.writer().take_over(query.writer().transactional_id_of_version_1(partition))
        task.begin()
        task.add(rows(topic, *texts))
        task.commit(*old_marker(query, partition, batch, len(texts)), [partition])
        task.close()
    # An attempt of the earlier release that has not ended.
    late = query.writer().take_over(f"statestore-{query.name}-1")
    late.begin()
    late.add(rows(topic, b"late"))
    run = run_of(query)
    with pytest.raises(TransactionFencedError):
        late.commit(*old_marker(query, 1, 7, 1), [1])
    late.close()
    plan = run.plan(7, 2, {7: "plan:a"}.get)
    with pytest.raises(BatchChangedError, match="has 1 records, and had 2"):
        look_at_partition(plan, 0, whole(rows(topic, b"7")))
    assert [written.was_there for written in write(plan, topic, (b"7", b"7"), (b"7",))] == [True, False]
    write(run_of(query).plan(8, 2, {8: "plan:b"}.get), topic, (b"8",), (b"8",))
    assert values(query.cluster.servers, topic) == [b"6", b"6", b"7", b"7", b"7", b"8", b"8"]
    assert query.found().markers == {partition: Marker(8, 2, 1, "plan:b") for partition in range(2)}


def test_no_two_sinks_have_a_transactional_id_in_common(query: Query) -> None:
    names = ["", "a", "b", "a-b", "a/b", "-", "/", "a%2Fb", "run", "0", "a/", "/b"]
    writer = query.writer()
    made = [
        replace(writer, prefix=prefix, query=name, name=of_query)
        for prefix, name, of_query in product(("p", *names), names, names)
    ]
    ids = [writer.transactional_id(partition) for writer, partition in product(made, (None, 0, 10))]
    assert len({*ids}) == len(ids)
    assert all(writer.transactional_id(0).startswith(writer.prefix) for writer in made)
    before = {writer.transactional_id_of_version_1(partition) for writer, partition in product(made, (0, 10))}
    assert before.isdisjoint(ids)
