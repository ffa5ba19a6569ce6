"""Recommended settings of Spark and its Kafka source and sink for a stateful query, each with its reason.

A library can't make these itself: they hold from the start of the JVM, or belong to another operator. `query_settings`
makes those for one query. docs/benchmarks.md says what they gain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

_DEFAULT_MEMORY_BYTES: Final = 3 << 29
_BESIDE_HEAP_BYTES: Final = 400 << 20
"""What a JVM with Spark and Kafka takes besides its heap: classes, compiled code, Arrow's and Kafka's buffers."""
_PYTHON_BYTES: Final = 100 << 20
"""The daemon of Python workers, and in local mode the driver."""
_WORKER_BYTES: Final = 120 << 20
_WORKERS_PER_TASK: Final = 2
"""One with the shard, and one that packs its input or unpacks its output."""
_MIN_HEAP_BYTES: Final = 512 << 20
"""Spark starts with no less than 450 MiB, of which the parallel collector takes a ninth away."""
_SERIAL_CORES: Final = 2
"""Up to so many cores, collecting with one thread blocks no core that would have work."""
_ARROW_BATCH_BYTES: Final = 64 << 20
"""Spark's default for what it hands to Python at once."""
_NO_BOUND: Final = (1 << 31) - 1
"""The one number for which Spark does not even add up sizes."""


@dataclass(frozen=True)
class Setting:
    """A setting, its value as Spark and Kafka take it, and the reason for it."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class SettingGroup:
    """Settings for one place."""

    settings: tuple[Setting, ...]

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def as_options(self) -> dict[str, str]:
        """Return name and value of each, for `SparkSession.builder.config(map=...)` and `.options(**...)`."""
        return {setting.name: setting.value for setting in self.settings}


@dataclass(frozen=True)
class RecommendedSettings:
    """Settings by place: the session before its JVM starts, and the Kafka source and sink of the query."""

    session: SettingGroup
    source: SettingGroup
    sink: SettingGroup

    def __iter__(self) -> Iterator[tuple[str, Setting]]:
        """Yield every setting with the name of its group."""
        for group in fields(self):
            yield from ((group.name, setting) for setting in getattr(self, group.name))


def recommended_settings(
    *, cores: int, memory_bytes: int = _DEFAULT_MEMORY_BYTES, local: bool = True, batch_bytes_max: int | None = None
) -> RecommendedSettings:
    """Return settings for a stateful query from Kafka to Kafka, with a reason each.

    Args:
        cores: how many tasks run at once in one process of Spark: N of `local[N]`, or an executor's cores.
        memory_bytes: how much memory such a process and its Python workers may take together, besides that for the
            state and its input (MemoryOptions of `stateful`), which large batches fill. 1.5 GiB by default.
        local: whether Spark runs in local mode, where the driver's process runs the tasks. On a cluster executors do;
            their `spark.executor.memoryOverhead` must hold what `memory_bytes` leaves besides the heap, and the state
            and input.
        batch_bytes_max: how large a micro-batch can become: `maxOffsetsPerTrigger` times the largest keys, values and
            headers and 100 bytes for each record. Up to 64 MiB, Spark is told to hand more rows to Python at once and
            not to add up their bytes. Larger batches, and those without a bound (None), need Spark's own bounds.

    Raises ValueError if `cores` or `batch_bytes_max` is less than 1 or `memory_bytes` leaves the JVM a heap of less
    than 512 MiB.
    """
    if cores < 1:
        raise ValueError(f"cores must be at least 1, not {cores}")
    if batch_bytes_max is not None and batch_bytes_max < 1:
        raise ValueError(f"batch_bytes_max must be at least 1 byte, or None, not {batch_bytes_max}")
    python_bytes = _PYTHON_BYTES + cores * _WORKERS_PER_TASK * _WORKER_BYTES
    heap_bytes = memory_bytes - _BESIDE_HEAP_BYTES - python_bytes
    if heap_bytes < _MIN_HEAP_BYTES:
        least = memory_bytes - heap_bytes + _MIN_HEAP_BYTES
        raise ValueError(f"memory_bytes must be at least {least} with {cores} cores, not {memory_bytes}")
    session = _session("spark.driver" if local else "spark.executor", cores, heap_bytes)
    if batch_bytes_max is not None and batch_bytes_max <= _ARROW_BATCH_BYTES:
        session += _LARGE_ARROW_BATCHES
    return RecommendedSettings(SettingGroup(session), SettingGroup(_SOURCE), SettingGroup(_SINK))


def _session(place: str, cores: int, heap_bytes: int) -> tuple[Setting, ...]:
    collector = "-XX:+UseSerialGC" if cores <= _SERIAL_CORES else "-XX:+UseParallelGC"
    return (
        Setting(
            f"{place}.memory",
            f"{heap_bytes >> 20}m",
            "Java fills its heap up to this bound; a batch needs little of it, as records cross it in blobs",
        ),
        Setting(
            f"{place}.extraJavaOptions",
            f"{collector} -Xms{heap_bytes >> 21}m",
            "the default collector fills the whole heap before it gives memory back; and before a heap grows, all "
            "of it is collected, so it begins with half of its bound; add your own options to these",
        ),
        Setting(
            "spark.python.daemon.module",
            "statestore.spark.python_daemon",
            "workers are forks of a daemon that has imported all: they start at once and share its memory",
        ),
        Setting(
            "spark.python.unix.domain.socket.enabled",
            "true",
            "over TCP a few small messages wait for a delayed acknowledgement: 40 ms at each crossing to Python",
        ),
        Setting(
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
            "true",
            "Spark commits each state partition by the bytes that changed, not by its whole database",
        ),
    )


_LARGE_ARROW_BATCHES: Final = (
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        str(_NO_BOUND),
        "after each row Spark adds up all columns of what it is about to hand to Python, headers above all; a "
        "micro-batch that is smaller than the bound never reaches it",
    ),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "50000",
        "what is handed to Python at once costs some milliseconds, whatever is in it, and has 10,000 rows by default",
    ),
)
_SOURCE: Final = (
    Setting(
        "kafka.max.poll.records",
        "5000",
        "a call of the consumer brings 500 records by default, and its fixed cost is paid for each call",
    ),
    Setting(
        "kafka.fetch.max.wait.ms",
        "10",
        "a batch that reads a partition to its end asks for what is not there yet, and its task waits for the broker "
        "to give up, 500 ms by default",
    ),
)
_SINK: Final = (
    Setting(
        "kafka.linger.ms",
        "50",
        "without it the producer sends what is there, many small requests; a micro-batch waits for all anyway",
    ),
    Setting(
        "kafka.batch.size",
        str(256 << 10),
        "how much of a partition goes into one request: 16 KiB by default are some 60 records",
    ),
)
