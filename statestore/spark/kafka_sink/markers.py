"""Markers: a record for each partition of a query's output that says which batch of it is in Kafka.

Layout: docs/formats/markers.md. A marker lies in the transaction of what it marks, so either both count or neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from statestore.errors import BatchChangedError, MarkerTopicError, SinkAheadError
from statestore.spark.kafka_sink.cluster import KafkaCluster, KeptRecord

_VERSION: Final = 1
_COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "3600000"}
_MOST_BYTES: Final = 4 << 10
"""No marker is larger."""


@dataclass(frozen=True)
class MarkerKey:
    """What a marker is of: a partition of what a writer of a query puts out."""

    query: str
    writer: str
    partition: int

    def to_bytes(self) -> bytes:
        """Return the key of the record."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> MarkerKey | None:
        """Return what `to_bytes` gave; None for the key of any other record."""
        fields = _fields(data)
        try:
            key = cls(str(fields["query"]), str(fields["writer"]), int(fields["partition"]))
        except (KeyError, TypeError, ValueError):
            return None
        return key if key.to_bytes() == data else None


@dataclass(frozen=True)
class Marker:
    """The last batch of which a partition was written."""

    batch: int
    partitions: int
    """Into how many the batch was divided."""
    records: int
    """How many the partition had, without the marker."""

    def to_bytes(self) -> bytes:
        """Return the value of the record."""
        return json.dumps({"version": _VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Marker:
        """Return what `to_bytes` gave. Raises ValueError for anything else."""
        fields = _fields(data)
        if fields.get("version") != _VERSION:
            raise ValueError(f"a marker of version {fields.get('version')!r}, and this release knows {_VERSION}")
        counts = [fields.get(name) for name in ("batch", "partitions", "records")]
        known = [count for count in counts if isinstance(count, int) and count >= 0]
        if len(known) != len(counts):
            raise ValueError(f"no marker: {data!r}")
        return cls(*known)

    def covers(self, query: str, batch_id: int, partitions: int) -> bool:
        """Return whether the batch is written. Raises SinkAheadError and BatchChangedError if that can't be."""
        if self.batch > batch_id:
            raise SinkAheadError(query, batch_id=batch_id, written=self.batch)
        if self.batch == batch_id and self.partitions != partitions:
            problem = f"it has {partitions} partitions, and had {self.partitions}"
            raise BatchChangedError(batch_id, problem=problem)
        return self.batch == batch_id


def _fields(data: bytes | None) -> dict[str, Any]:
    """Return the fields of a JSON object; none for anything else."""
    if data is None or len(data) > _MOST_BYTES:
        return {}
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


@dataclass(frozen=True)
class MarkerTopic:
    """The compacted topic that holds the markers of any number of queries. Picklable."""

    cluster: KafkaCluster
    name: str
    partitions: int

    @classmethod
    def of(cls, cluster: KafkaCluster, name: str, partitions: int) -> MarkerTopic:
        """Return the topic, which is made with so many partitions if there is none.

        Raises MarkerTopicError if markers would be deleted there, KafkaRefusedError, KafkaTimeoutError.
        """
        found = cluster.partitions(name)
        if found is None:
            cluster.create_topic(name, partitions, _COMPACT)
            return cls(cluster, name, cluster.partitions(name) or partitions)
        policies = cluster.cleanup_policies(name)
        if policies != {"compact"}:
            problem = f"its cleanup.policy is {','.join(sorted(policies))}, so markers would be lost. Set it to compact"
            raise MarkerTopicError(name, problem=problem)
        return cls(cluster, name, found)

    def partition_of(self, key: MarkerKey) -> int:
        """Return the partition that holds a marker: one of its own, if there are as many as the query has."""
        return key.partition % self.partitions

    def read_all(self, query: str, writer: str) -> tuple[dict[int, Marker], dict[int, int]]:
        """Return the markers of a writer by its partitions, and up to which offsets the topic's logs were read."""
        ends = self.cluster.end_offsets(self.name, range(self.partitions), committed=True)
        found: dict[int, Marker] = {}
        for record, key in self._records(dict.fromkeys(ends, 0), ends):
            if (key.query, key.writer) == (query, writer):
                marker = self._marker(record)
                # The latest, wherever it stands: a topic may have been given more partitions.
                if key.partition not in found or found[key.partition].batch < marker.batch:
                    found[key.partition] = marker
        return found, ends

    def last_after(self, key: MarkerKey, offset: int) -> Marker | None:
        """Return the last marker of a key from an offset on, None if there is none.

        Waits until each transaction has ended that had written to the log when this was called.
        """
        partition = self.partition_of(key)
        ends = self.cluster.end_offsets(self.name, [partition], committed=False)
        if ends[partition] < offset:
            raise MarkerTopicError(self.name, problem=f"what was before offset {offset} is gone. Restore the topic")
        found = None
        for record, other in self._records({partition: offset}, ends):
            if other == key:
                found = self._marker(record)
        return found

    def _records(self, starts: dict[int, int], ends: dict[int, int]) -> Iterator[tuple[KeptRecord, MarkerKey]]:
        for record in self.cluster.read(self.name, starts, ends):
            key = MarkerKey.from_bytes(record.key)
            if key is not None:
                yield record, key

    def _marker(self, record: KeptRecord) -> Marker:
        try:
            return Marker.from_bytes(record.value)
        except ValueError as cause:
            problem = f"partition {record.partition}, offset {record.offset}: {cause}"
            raise MarkerTopicError(self.name, problem=problem) from cause
