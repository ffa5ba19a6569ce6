"""Markers: a record for each partition of a query's output that says which batch of it is in Kafka.

Layout: docs/formats/markers.md. A marker lies in the transaction of what it marks, so either both count or neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from statestore.errors.run import BatchChangedError, MarkerTopicError, SinkAheadError
from statestore.spark.kafka_sink.cluster import KafkaCluster, KeptRecord

OF_PLAN: Final = "plan:"
"""Begins the digest of Spark's plan of a batch, which all its partitions share."""
OF_RECORDS: Final = "records:"
"""Begins the digest of a partition's records."""
_VERSION: Final = 2
_WITHOUT_DIGEST: Final = 1
_RUN: Final = -1
"""In a key in place of a partition: the marker is of the writer's run."""
_COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "3600000"}
_MOST_BYTES: Final = 4 << 10
"""No marker is larger."""


@dataclass(frozen=True)
class MarkerKey:
    """Says what a marker is about: a partition of a query's writer, or the writer's run."""

    query: str
    writer: str
    partition: int = _RUN

    def to_bytes(self) -> bytes:
        """Return the key of the record."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> MarkerKey | None:
        """Return the key that `to_bytes` wrote; None for the key of any other record."""
        fields = _fields(data)
        try:
            key = cls(str(fields["query"]), str(fields["writer"]), int(fields["partition"]))
        except (KeyError, TypeError, ValueError):
            return None
        return key if key.to_bytes() == data else None


@dataclass(frozen=True)
class _MarkerValue:
    def to_bytes(self) -> bytes:
        """Return the value of the record."""
        return json.dumps({"version": _VERSION, **asdict(self)}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Marker(_MarkerValue):
    """Says which batch of a partition was written last."""

    batch: int
    partitions: int
    """How many the batch had."""
    records: int
    """How many the partition had, without the marker."""
    digest: str
    """OF_PLAN or OF_RECORDS and the digest; empty in a marker of version 1."""

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Marker:
        """Return the marker that `to_bytes` wrote, in any release. Raises ValueError for anything else."""
        fields = _fields_of_marker(data)
        counts = _counts(fields, "batch", "partitions", "records")
        digest = fields.get("digest") if fields["version"] != _WITHOUT_DIGEST else ""
        if counts is None or not isinstance(digest, str):
            raise ValueError(f"not a marker: {data!r}")
        batch, partitions, records = counts
        return cls(batch, partitions, records, digest)

    def covers(self, query: str, batch_id: int, partitions: int, digest: str) -> bool:
        """Return whether a batch is written; `digest` is "" if unknown. Raises SinkAheadError, BatchChangedError."""
        if self.batch < batch_id:
            return False
        if self.batch > batch_id or (self.is_of_plan and digest and self.digest != digest):
            raise SinkAheadError(query, batch_id=batch_id, written=self.batch)
        if self.partitions != partitions:
            problem = f"it has {partitions} partitions, and had {self.partitions}"
            raise BatchChangedError(batch_id, problem=problem)
        if self.is_of_plan and not digest:
            problem = "it was written by a run that could read Spark's plan of the batch, which this run can't"
            raise BatchChangedError(batch_id, problem=problem)
        return True

    @property
    def is_of_plan(self) -> bool:
        """Whether the digest is of the plan, which says nothing about single records."""
        return self.digest.startswith(OF_PLAN)

    @property
    def is_of_records(self) -> bool:
        """Whether the digest is of the partition's records."""
        return self.digest.startswith(OF_RECORDS)


@dataclass(frozen=True)
class RunMarker(_MarkerValue):
    """Says which run of a writer may write; tasks of an earlier run stop when they find it."""

    run: str
    partitions: int
    """The most that a batch had in any run."""

    @classmethod
    def from_bytes(cls, data: bytes | None) -> RunMarker:
        """Return the marker that `to_bytes` wrote. Raises ValueError for anything else."""
        fields = _fields_of_marker(data)
        counts = _counts(fields, "partitions")
        if counts is None or not isinstance(fields.get("run"), str):
            raise ValueError(f"not a marker of a run: {data!r}")
        return cls(fields["run"], *counts)


def _fields_of_marker(data: bytes | None) -> dict[str, Any]:
    fields = _fields(data)
    if fields.get("version") not in (_WITHOUT_DIGEST, _VERSION):
        raise ValueError(f"a marker of version {fields.get('version')!r}; this release knows up to {_VERSION}")
    return fields


def _counts(fields: Mapping[str, Any], *names: str) -> list[int] | None:
    """Return these fields; None if one of them is not a whole number of at least 0."""
    found = [fields.get(name) for name in names]
    counts = [count for count in found if type(count) is int and count >= 0]
    return counts if len(counts) == len(found) else None


def _fields(data: bytes | None) -> dict[str, Any]:
    """Return the fields of a JSON object; an empty dict for anything else."""
    if data is None or len(data) > _MOST_BYTES:
        return {}
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


@dataclass
class WriterMarkers:
    """The markers of a writer in the marker topic."""

    markers: dict[int, Marker] = field(default_factory=dict)
    """The last one of each partition of the query."""
    run: RunMarker | None = None
    read_to: dict[int, int] = field(default_factory=dict)
    """By partition of the topic, up to which offset it was read."""

    @property
    def most_partitions(self) -> int:
        """The most partitions that a batch is known to have had; 0 if none is known."""
        counts = [max(marker.partitions, partition + 1) for partition, marker in self.markers.items()]
        return max([0 if self.run is None else self.run.partitions, *counts])


@dataclass(frozen=True)
class MarkerTopic:
    """The compacted topic that holds the markers of any number of queries. Picklable."""

    cluster: KafkaCluster
    name: str
    partitions: int

    @classmethod
    def of(cls, cluster: KafkaCluster, name: str, partitions: int) -> MarkerTopic:
        """Return the topic, made if there is none. Raises MarkerTopicError if markers would be deleted there."""
        found = cluster.partitions(name)
        wanted = max(1, partitions)  # a batch without rows may have none
        if found is None and cluster.create_topic(name, wanted, _COMPACT):
            return cls(cluster, name, wanted)
        # Without a guess: where it is divided otherwise, markers are in other partitions.
        found = found or cluster.known_partitions(name)
        policies = cluster.cleanup_policies(name)
        if policies != {"compact"}:
            problem = f"its cleanup.policy is {','.join(sorted(policies))}, which loses markers: set it to compact"
            raise MarkerTopicError(name, problem=problem)
        return cls(cluster, name, found)

    def partition_of(self, key: MarkerKey) -> int:
        """Return the topic's partition for a marker: one for each, if the query has no more partitions."""
        return key.partition % self.partitions

    def read(self, query: str, writer: str, into: WriterMarkers, *, committed: bool = True) -> None:
        """Add a writer's markers after those in `into`; unless `committed`, also those that are open or aborted."""
        starts = {partition: into.read_to.get(partition, 0) for partition in range(self.partitions)}
        ends = self._ends(starts)
        for record, key in self._records(starts, ends, committed=committed):
            if (key.query, key.writer) != (query, writer):
                continue
            if key.partition == _RUN:
                into.run = self._decoded(RunMarker, record)
                continue
            marker = self._decoded(Marker, record)
            known = into.markers.get(key.partition)
            # The latest from any partition: the topic may have been given more partitions since.
            if known is None or known.batch <= marker.batch:
                into.markers[key.partition] = marker
        into.read_to = ends

    def last_after(self, key: MarkerKey, offset: int) -> tuple[Marker | None, RunMarker | None]:
        """Return the last markers of a key and of its writer's runs from an offset on. Waits for open transactions."""
        partition = self.partition_of(key)
        starts = {partition: offset}
        marker, run = None, None
        for record, other in self._records(starts, self._ends(starts)):
            if other == key:
                marker = self._decoded(Marker, record)
            elif other == MarkerKey(key.query, key.writer):
                run = self._decoded(RunMarker, record)
        return marker, run

    def _ends(self, starts: Mapping[int, int]) -> dict[int, int]:
        ends = self.cluster.end_offsets(self.name, starts)
        for partition, start in starts.items():
            # The end of a transaction comes to the log some time after its commit.
            if ends[partition] + 1 < start:
                raise MarkerTopicError(self.name, problem=f"records before offset {start} are gone: restore it")
        return ends

    def _records(
        self, starts: dict[int, int], ends: dict[int, int], *, committed: bool = True
    ) -> Iterator[tuple[KeptRecord, MarkerKey]]:
        for record in self.cluster.read(self.name, starts, ends, committed=committed):
            key = MarkerKey.from_bytes(record.key)
            if key is not None:
                yield record, key

    def _decoded(self, kind: Any, record: KeptRecord) -> Any:
        try:
            return kind.from_bytes(record.value)
        except ValueError as cause:
            problem = f"partition {record.partition}, offset {record.offset}: {cause}"
            raise MarkerTopicError(self.name, problem=problem) from cause
