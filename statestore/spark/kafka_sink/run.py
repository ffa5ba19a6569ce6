"""A run of a writer, on the driver: what of its batches is in Kafka, and what to tell the next batch's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final
from uuid import uuid4

from statestore.errors.run import SinkAheadError, TransactionFencedError
from statestore.spark.kafka_sink.markers import Marker, MarkerKey, RunMarker, WriterMarkers
from statestore.spark.kafka_sink.partition import LATER_RUN, BatchPlan, PartitionWritten, Writer
from statestore.spark.kafka_sink.transaction import Transaction

_TAKEN_OVER_AT_ONCE: Final = 8


class WriterRun:
    """The run of a writer that may write, until a later one is made."""

    def __init__(self, writer: Writer, partitions: int) -> None:
        """Begin a run with batches of so many partitions; later ones may have more. Raises KafkaSinkErrors.

        The run announces itself in the topic of markers, and takes over the ids of all partitions that a batch ever
        had. After that nothing of an earlier run can be committed: attempts that have begun are fenced, and later ones
        find the announcement. So the markers are final until this run's tasks write.
        """
        self._writer = writer
        self._name = uuid4().hex
        self._found = WriterMarkers()
        self._read_to: dict[int, int] = {}
        self._is_of_checkpoint = False
        """Whether the markers of earlier runs have been compared with the checkpoint's plans."""
        self._begin(partitions)

    def plan(self, batch_id: int, partitions: int, planned: Callable[[int], str | None]) -> BatchPlan:
        """Return what to tell a batch's tasks. Raises what `Marker.covers` does, and TransactionFencedError."""
        if partitions > self._found.most_partitions:
            self._grow(partitions)
        plan = BatchPlan(
            self._writer,
            self._name,
            batch_id,
            partitions,
            planned(batch_id) or "",
            dict(self._found.markers),
            dict(self._read_to),
            dict(self._found.read_to),
        )
        for marker in plan.markers.values():
            plan.covered(marker)
        if not self._is_of_checkpoint:
            self._check_earlier(batch_id, planned)
            self._is_of_checkpoint = True
        return plan

    def _check_earlier(self, batch_id: int, planned: Callable[[int], str | None]) -> None:
        """Raise SinkAheadError if an earlier batch was written by another plan, from another copy of the checkpoint."""
        there = {marker for marker in self._found.markers.values() if marker.is_of_plan and marker.batch < batch_id}
        for batch, digest in {(marker.batch, marker.digest) for marker in there}:
            if planned(batch) not in (None, digest):
                raise SinkAheadError(self._writer.query, batch_id=batch_id, written=batch)

    def note(self, plan: BatchPlan, written: Iterable[PartitionWritten]) -> None:
        """Keep the markers that tasks have written, so that later tasks need not read them."""
        for each in written:
            if each.read_to >= 0:
                marker = Marker(plan.batch_id, plan.partitions, each.records, each.digest)
                self._found.markers[each.partition] = marker
                self._read_to[each.partition] = each.read_to

    def _begin(self, partitions: int) -> None:
        """Announce this run, and end what earlier ones have begun."""
        writer, left = self._writer, WriterMarkers()
        with closing(writer.take_over(writer.transactional_id(None))) as transaction:
            # Uncommitted markers as well: this must not wait for transactions that it is about to end.
            writer.topic.read(writer.query, writer.name, left, committed=False)
            most = max(partitions, left.most_partitions)
            if left.run is None:
                # Earlier releases did not announce runs, and their tasks have other ids. Each run that has announced
                # itself has ended these.
                self._end_all(map(writer.transactional_id_of_version_1, range(most)))
            self._say(transaction, most)
        self._end_all(map(writer.transactional_id, range(most)))
        self._read()

    def _grow(self, partitions: int) -> None:
        """Announce more partitions, before any task has one of them."""
        writer = self._writer
        with closing(writer.take_over(writer.transactional_id(None))) as transaction:
            self._read()
            self._say(transaction, partitions)
        self._read()

    def _read(self) -> None:
        """Read the new markers. Raises TransactionFencedError if a later run has begun."""
        writer, found = self._writer, self._found
        writer.topic.read(writer.query, writer.name, found)
        if found.run is None or found.run.run != self._name:
            raise TransactionFencedError(writer.transactional_id(None), cause=LATER_RUN)

    def _say(self, transaction: Transaction, most: int) -> None:
        transaction.begin()
        said = RunMarker(self._name, most)
        key = MarkerKey(self._writer.query, self._writer.name)
        transaction.commit(key.to_bytes(), said.to_bytes(), range(self._writer.topic.partitions))

    def _end_all(self, ids: Iterable[str]) -> None:
        """Take ids over; after that, transactions begun with them are committed or aborted for good."""
        with ThreadPoolExecutor(_TAKEN_OVER_AT_ONCE) as pool:
            for taken in pool.map(self._writer.take_over, ids):
                taken.close()
