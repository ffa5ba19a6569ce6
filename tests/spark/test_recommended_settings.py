"""What is recommended are settings that Spark and Kafka know, with values that they take, and that fit together."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISSOCK
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from statestore.spark import recommended_settings
from statestore.testing.jars import java_command
from tests.support.spark.queries import spark_settings

MIB = 1 << 20
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def config_names(jvm: Any, config: str) -> set[str]:
    """Return the names that a client of Kafka knows."""
    return set(getattr(jvm.org.apache.kafka.clients, config).configNames())


def test_spark_knows_every_setting_of_the_session_and_reads_its_value(jvm: Any) -> None:
    entries = getattr(jvm.org.apache.spark.internal.config, "ConfigEntry$").__getattr__("MODULE$")
    known = entries.knownConfigs()
    everywhere = [
        *recommended_settings(cores=2).session,
        *recommended_settings(cores=16, memory_bytes=8192 * MIB, local=False, batch_bytes_max=MIB).session,
    ]
    for setting in everywhere:
        if setting.name == CHANGELOG:
            continue  # it is not in the register
        assert known.containsKey(setting.name), setting.name
        # The converter of the entry itself: what it can't read, a session refuses.
        known.get(setting.name).valueConverter().apply(setting.value)


def test_spark_s_rocksdb_provider_reads_its_setting(spark: SparkSession, jvm: Any) -> None:
    state = jvm.org.apache.spark.sql.execution.streaming.state

    def has_changelog(session: SparkSession) -> bool:
        conf = state.StateStoreConf(session._jsparkSession.sessionState().conf(), jvm.PythonUtils.toScalaMap({}))
        return bool(state.RocksDBConf.apply(conf).enableChangelogCheckpointing())

    session = spark.newSession()
    assert not has_changelog(session)
    session.conf.set(CHANGELOG, recommended_settings(cores=2).session.as_options()[CHANGELOG])
    assert has_changelog(session)


def test_kafka_knows_every_option_of_source_and_sink(jvm: Any) -> None:
    settings = recommended_settings(cores=2)
    consumer, producer = config_names(jvm, "consumer.ConsumerConfig"), config_names(jvm, "producer.ProducerConfig")
    assert {setting.name.removeprefix("kafka.") for setting in settings.source} <= consumer
    assert {setting.name.removeprefix("kafka.") for setting in settings.sink} <= producer
    # Without the prefix Spark would take it for an option of its own, and forget it.
    assert all(setting.name.startswith("kafka.") for group in (settings.source, settings.sink) for setting in group)


def test_spark_can_start_the_daemon_of_python_workers_that_is_recommended() -> None:
    assert find_spec(recommended_settings(cores=2).session.as_options()["spark.python.daemon.module"]) is not None


def families_of_open_sockets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        families = set()
        # The descriptor of the listing itself is gone by the time it is looked at.
        for name in filter(os.path.exists, (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))):
            if S_ISSOCK(os.stat(name).st_mode):
                with socket.socket(fileno=os.dup(int(os.path.basename(name)))) as copied:
                    families.add(copied.family.name)
        yield pa.record_batch([["".join(sorted(families))] * batch.num_rows], ["families"])


def test_no_worker_talks_tcp_to_spark_where_a_small_message_may_wait_for_an_acknowledgement(
    spark: SparkSession,
) -> None:
    (found,) = spark.range(1).mapInArrow(families_of_open_sockets, "families string").collect()
    assert found.families == "AF_UNIX"


def test_the_heap_grows_with_memory_and_shrinks_with_workers() -> None:
    def heap_mib(cores: int, memory_bytes: int) -> int:
        heap = recommended_settings(cores=cores, memory_bytes=memory_bytes).session.as_options()["spark.driver.memory"]
        assert heap.endswith("m")
        return int(heap[:-1])

    assert heap_mib(2, 2048 * MIB) == heap_mib(2, 1536 * MIB) + 512
    assert heap_mib(1, 4096 * MIB) > heap_mib(2, 4096 * MIB) > heap_mib(4, 4096 * MIB)


def rows_at_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([[batch.num_rows for batch in batches]], names=["rows"])


def handed_to_python(spark: SparkSession, batch_bytes_max: int | None, rows: int, value_bytes: int) -> list[int]:
    """Return how many rows of a task a function of Python got at once, each time."""
    asked = recommended_settings(cores=2, batch_bytes_max=batch_bytes_max).session.as_options()
    with spark_settings(spark, {name: asked[name] for name in {ARROW_BYTES, ARROW_ROWS} & asked.keys()}):
        values = spark.range(rows, numPartitions=1).select(F.expr(f"repeat('v', {value_bytes})"))
        return [row.rows for row in values.mapInArrow(rows_at_once, "rows long").collect()]


@pytest.mark.parametrize(
    ("batch_bytes_max", "times", "first_rows"), [(None, 6, 10_000), (65 * MIB, 6, 10_000), (64 * MIB, 2, 50_000)]
)
def test_small_batches_are_handed_to_python_in_large_parts(
    spark: SparkSession, batch_bytes_max: int | None, times: int, first_rows: int
) -> None:
    found = handed_to_python(spark, batch_bytes_max, rows=60_000, value_bytes=1)
    assert (len(found), found[0], sum(found)) == (times, first_rows, 60_000)


@pytest.mark.parametrize(("batch_bytes_max", "is_bounded"), [(None, True), (65 * MIB, True), (64 * MIB, False)])
def test_small_batches_are_handed_to_python_without_a_bound_in_bytes(
    spark: SparkSession, batch_bytes_max: int | None, is_bounded: bool
) -> None:
    found = handed_to_python(spark, batch_bytes_max, rows=66, value_bytes=MIB)
    assert len(found) == 1 + is_bounded
    assert sum(found) == 66


def test_local_mode_and_clusters_differ_in_whose_jvm_it_is() -> None:
    local, cluster = (recommended_settings(cores=2, local=local).session.as_options() for local in (True, False))
    assert {name.replace("spark.driver.", "spark.executor."): value for name, value in local.items()} == cluster
    assert local != cluster


def test_each_setting_has_a_reason_and_stands_in_one_group() -> None:
    settings = [setting for _, setting in recommended_settings(cores=4, memory_bytes=4096 * MIB)]
    assert all(setting.reason and setting.value for setting in settings)
    assert len({setting.name for setting in settings}) == len(settings)


@pytest.mark.parametrize(
    ("cores", "memory_bytes"), [(0, 4096 * MIB), (-1, 4096 * MIB), (2, 1024 * MIB), (16, 2048 * MIB)]
)
def test_what_leaves_no_room_is_refused(cores: int, memory_bytes: int) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        recommended_settings(cores=cores, memory_bytes=memory_bytes)


@pytest.mark.parametrize("batch_bytes_max", [0, -1])
def test_a_batch_of_no_bytes_is_refused(batch_bytes_max: int) -> None:
    with pytest.raises(ValueError, match=f"not {batch_bytes_max}"):
        recommended_settings(cores=2, batch_bytes_max=batch_bytes_max)


MAX_MEMORY = """
class MaxMemory { public static void main(String[] none) { System.out.print(Runtime.getRuntime().maxMemory()); } }
"""


@pytest.mark.parametrize("cores", [2, 3])
def test_the_least_memory_is_the_one_that_the_error_names_and_spark_starts_with_it(
    jvm: Any, tmp_path: Path, cores: int
) -> None:
    with pytest.raises(ValueError, match="memory_bytes") as refused:
        recommended_settings(cores=cores, memory_bytes=1)
    least = int(str(refused.value).split("at least ")[1].split()[0])
    with pytest.raises(ValueError, match="memory_bytes"):
        recommended_settings(cores=cores, memory_bytes=least - 1)
    settings = recommended_settings(cores=cores, memory_bytes=least).session.as_options()
    program = tmp_path / "MaxMemory.java"
    program.write_text(MAX_MEMORY)
    # Java says what of its heap a program can have, and Spark whether that is enough. Spark, too, has options ignored.
    flags = ["-XX:+IgnoreUnrecognizedVMOptions", *settings["spark.driver.extraJavaOptions"].split()]
    command = [java_command(), f"-Xmx{settings['spark.driver.memory']}", *flags, str(program)]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.testing.memory", said)
    assert jvm.org.apache.spark.memory.UnifiedMemoryManager.apply(conf, cores).maxHeapMemory() > 0
