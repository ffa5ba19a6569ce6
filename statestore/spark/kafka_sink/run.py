"""A run of a writer, on the driver: what of its batches is in Kafka, and what the tasks of the next one are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final
from uuid import uuid4

from statestore.errors.run import SinkAheadError, TransactionFencedError
from statestore.spark.kafka_sink.markers import Marker, RunMarker, WriterMarkers
from statestore.spark.kafka_sink.partition import LATER_RUN, BatchPlan, PartitionWritten, Writer
from statestore.spark.kafka_sink.transaction import Transaction

_TAKEN_OVER_AT_ONCE: Final = 8


class WriterRun:
    """The run of a writer that writes, from when it was made until a later one is."""

    def __init__(self, writer: Writer, partitions: int) -> None:
        """Begin it, with batches of so many partitions; more may come. Raises KafkaSinkErrors.

        It says in the topic of markers that it has begun, and takes over the ids of all partitions that a batch ever
        had. So nothing of an earlier run can be committed after this: an attempt of it that has begun is fenced, and
        one that begins later finds what this run has said. Then the markers are final, until this run's tasks write.
        """
        self._writer = writer
        self._name = uuid4().hex
        self._found = WriterMarkers()
        self._read_to: dict[int, int] = {}
        self._is_of_checkpoint = False
        """Whether what was there before this run has been compared with the checkpoint's plans."""
        self._begin(partitions)

    def plan(self, batch_id: int, partitions: int, planned: Callable[[int], str | None]) -> BatchPlan:
        """Return what tasks need to know of a batch. Raises what `Marker.covers` does, and TransactionFencedError."""
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
        """Raise SinkAheadError if another plan wrote an earlier batch, as one of another copy of the checkpoint."""
        there = {marker for marker in self._found.markers.values() if marker.is_of_plan and marker.batch < batch_id}
        for batch, digest in {(marker.batch, marker.digest) for marker in there}:
            if planned(batch) not in (None, digest):
                raise SinkAheadError(self._writer.query, batch_id=batch_id, written=batch)

    def note(self, plan: BatchPlan, written: Iterable[PartitionWritten]) -> None:
        """Keep what tasks have written, so that later ones need not read it again."""
        for each in written:
            if each.read_to >= 0:
                marker = Marker(plan.batch_id, plan.partitions, each.records, each.digest)
                self._found.markers[each.partition] = marker
                self._read_to[each.partition] = each.read_to

    def _begin(self, partitions: int) -> None:
        """Say that this run may write, and end what earlier ones have begun."""
        writer, left = self._writer, WriterMarkers()
        with closing(writer.take_over(writer.transactional_id(None))) as transaction:
            # Also what is open: this must not wait for what it is to end.
            writer.topic.read(writer.query, writer.name, left, committed=False)
            most = max(partitions, left.most_partitions)
            if left.run is None:
                # Runs of earlier releases say nothing, and their tasks have other ids. Each run that says something has
                # ended these before.
                self._end_all(map(writer.transactional_id_of_version_1, range(most)))
            self._say(transaction, most)
        self._end_all(map(writer.transactional_id, range(most)))
        self._read()

    def _grow(self, partitions: int) -> None:
        """Say that there will be more partitions, before any task has one of them."""
        writer = self._writer
        with closing(writer.take_over(writer.transactional_id(None))) as transaction:
            self._read()
            self._say(transaction, partitions)
        self._read()

    def _read(self) -> None:
        """Read on. Raises TransactionFencedError if a later run has begun: tasks read on behind this."""
        writer, found = self._writer, self._found
        writer.topic.read(writer.query, writer.name, found)
        if found.run is None or found.run.run != self._name:
            raise TransactionFencedError(writer.transactional_id(None), cause=LATER_RUN)

    def _say(self, transaction: Transaction, most: int) -> None:
        transaction.begin()
        said = RunMarker(self._name, most)
        transaction.commit(self._writer.run_key.to_bytes(), said.to_bytes(), range(self._writer.topic.partitions))

    def _end_all(self, ids: Iterable[str]) -> None:
        """Take ids over: what was begun under them is committed or aborted for good after this."""
        with ThreadPoolExecutor(_TAKEN_OVER_AT_ONCE) as pool:
            for taken in pool.map(self._writer.take_over, ids):
                taken.close()
