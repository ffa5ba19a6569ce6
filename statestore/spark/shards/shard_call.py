"""The shard call: one Python call per shard and micro-batch, the same under both of Spark's entry points."""

from __future__ import annotations

import base64
import logging
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from statestore.errors import TopologyError
from statestore.interception.failures import FailureHandling, FailureStage
from statestore.processor.column_sources import are_cut_short
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import shard_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.changelog import ChangelogObserver, ChangelogRecord
from statestore.recovery.commit.figures import Stopwatch
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.heads.publishing import identity
from statestore.recovery.metadata.agreement import claim
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from statestore.spark.figures import RecordFigures, ShardFigures, TimeFigures
from statestore.spark.query_settings import check_partitions
from statestore.spark.shards.blobs import BlobSpool, OutputBlobs, schema_of_blob
from statestore.spark.shards.lanes import Placing, lane_of
from statestore.spark.shards.record_order import batches_in_order, records_in_order
from statestore.spark.start_refusal import check_start

_LOG = logging.getLogger(__name__)
POINTER: Final = "pointer"
WENT_ON_FROM: Final = "went_on_from"
_RECORDS_PER_OUTPUT_BLOB = 20_000
_HELD_OUTPUT_BYTES = 16 << 20
"""How much output is held in memory until Spark takes it; the rest goes to local disk. One record, or the end of a
batch, may put out any number of blobs."""
_ROWS_PER_BATCH = 65_536
_BYTES_PER_BATCH = 32 << 20
"""What a batch processor is given at once, so that each key in it is fetched once. Up to five copies are held: columns
in order, taken apart by key, output."""
_claimed: set[tuple[str, str, str]] = set()
"""The state location, query and its changes that this Python process has claimed or found claimed, in any batch."""


class ShardResult(NamedTuple):
    """What Spark needs of a shard call: the pointer to record, and when to call again even without records."""

    pointer: str
    wake_up_ms: int | None
    figures: ShardFigures
    went_on_from: str
    """The identity of the pointer that the call was given."""

    def observed_json(self) -> str:
        """Return what the driver is told of the call: its figures, and the pointer, compressed."""
        packed = base64.b64encode(zlib.compress(self.pointer.encode())).decode()
        return self.figures.to_json(**{POINTER: packed, WENT_ON_FROM: self.went_on_from})


class _Processed(NamedTuple):
    """The results of a batch's records besides output."""

    records: RecordFigures
    end: BatchEnd
    wake_up_ms: int | None
    on_changelog: ChangelogObserver | None
    failures: Mapping[str, int]
    counted: Mapping[str, int]


@dataclass(frozen=True)
class StateChange:
    """What the run changes of a state's metadata, which its owner alone may record."""

    metadata: StateMetadata
    accepted: bool | Collection[str]


@dataclass(frozen=True)
class ShardCall:
    """Runs one shard of a query for one micro-batch. Travels to the executors."""

    topology: Topology
    state: ShardedState
    routing: tuple[int, ...]
    handling: FailureHandling
    input_memory_bytes: int
    wall_clock: bool = False
    """Whether Spark calls back at `ShardResult.wake_up_ms`."""
    planned_partitions: int | None = None
    """How many state partitions `stateful` asked for; None if the session says."""
    hands_on: bool = False
    """Whether blobs may be in lanes; those are yielded unchanged."""
    is_last: bool = True
    """Whether the output is the query's result, not another stage's input."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """The stores of which later stages have copies, and the topics by which those hear what is written to them."""
    change: StateChange | None = None

    def run(
        self, route: int, blobs: Iterable[bytes], recorded: str | None, query_id: str, batch_id: int, now_ms: int
    ) -> Generator[bytes, None, ShardResult]:
        """Process a batch's blobs of one shard; `recorded` is its pointer, None at the first call. Yield the output."""
        check_start()
        check_partitions(self.planned_partitions)
        shard = self.routing.index(route)
        self._claim(query_id)
        pointer = given = self.state.pointer(shard, recorded)
        context = TaskRecordContext(pointer.stream_time_ms, now_ms)
        with (
            self.state.spill_space(shard) as space,
            BlobSpool(space, "input", self.input_memory_bytes) as spool,
            BlobSpool(space, "output", _HELD_OUTPUT_BYTES) as waiting,
        ):
            for blob in blobs:
                if self.hands_on and lane_of(schema_of_blob(blob)) is not None:
                    yield blob
                else:
                    spool.add(blob)
            watch = Stopwatch()
            with self.state.open(pointer, space) as batch:
                open_ms = watch.lap_ms()
                place = None if self.is_last else Placing(shard, batch_id)
                outputs = OutputBlobs(waiting, _RECORDS_PER_OUTPUT_BLOB, place=place)
                processed = yield from self._process(batch, context, spool, outputs, watch)
                process_ms = watch.lap_ms()
                pointer, committed = batch.commit(processed.end, self._copying(processed.on_changelog, outputs))
                commit_ms = watch.lap_ms()
                with watch.paused():
                    yield from outputs.take_all()
                # After the delta is written: a batch that fails spends no time on it.
                committed = replace(committed, upgrade=batch.finish_upgrades(self.state.recovery.upgrade_budget_ms))
                upgrade_ms = watch.lap_ms()
            times = TimeFigures(open_ms, process_ms, commit_ms, upgrade_ms, watch.lap_ms())
        figures = ShardFigures(
            shard=shard,
            version=pointer.version,
            records=processed.records,
            times=times,
            failures=processed.failures,
            counted=processed.counted,
            **vars(committed),
        )
        return ShardResult(pointer.to_json(), processed.wake_up_ms, figures, identity(given))

    def _process(
        self, batch: ShardBatch, context: TaskRecordContext, spool: BlobSpool, outputs: OutputBlobs, watch: Stopwatch
    ) -> Generator[bytes, None, _Processed]:
        """Run the records of the spool through the topology, after which the batch can be committed."""
        stores = shard_stores(self.topology, batch, context)
        task = Task(
            self.topology,
            batch.pointer.shard,
            stores,
            context,
            handling=self.handling,
            punctuations=batch.pointer.punctuations,
            processor_metadata=batch.pointer.processor_metadata,
            earlier=batch.pointer.earlier,
            by_records=are_cut_short(
                self.topology,
                batch.pointer.punctuations,
                lambda: next(batches_in_order(spool.blobs, self._topics_first()), None),
            ),
            send=outputs.add,
            send_batch=outputs.add_batch,
        )
        now_ms, processed = context.system_time_ms, 0
        try:
            for count in self._steps(task, spool, outputs):
                processed += count
                with watch.paused():
                    yield from outputs.take()
            task.end_batch(now_ms)
            with watch.paused():
                yield from outputs.take_all()
            wake_up_ms = task.next_wall_clock_ms
        except BaseException:
            task.abandon()
            raise
        end = task.leave()
        if task.skipped_records:
            _LOG.warning("shard %d: skipped %d records that no serde could read", task.shard, task.skipped_records)
        if wake_up_ms is not None and not self.wall_clock:
            raise TopologyError(
                "a processor scheduled a punctuation by the wall clock in this batch, but not when the query was "
                "started: schedule the same in every init()"
            )
        failures = task.failures
        counted = RecordFigures(
            processed,
            task.skipped_records,
            task.punctuation_count,
            outputs.record_count,
            failures.by_stage[FailureStage.REFUSAL],
            failures.by_stage[FailureStage.PROCESSING] + failures.by_stage[FailureStage.PRODUCTION],
            failures.dead_letters,
        )
        return _Processed(counted, end, wake_up_ms, task.on_changelog, dict(failures.by_error), dict(task.counted))

    def _copying(self, on_changelog: ChangelogObserver | None, outputs: OutputBlobs) -> ChangelogObserver | None:
        """Return what also puts out what was written to stores that are copied, for an observer of all writes."""
        if not self.copied:
            return on_changelog

        def observe(store: str, records: Iterable[ChangelogRecord]) -> None:
            if on_changelog is not None:
                on_changelog(store, records)
            if store in self.copied:
                for key, value, timestamp_ms, header_bytes in records:
                    outputs.add(self.copied[store], timestamp_ms, key, value, header_bytes)

        return observe

    def _topics_first(self) -> frozenset[str]:
        return frozenset((*self.topology.global_stores.values(), *self.topology.copied_stores.values()))

    def _steps(self, task: Task, spool: BlobSpool, outputs: OutputBlobs) -> Iterator[int]:
        """Process all records and yield the count of each step, after which Spark can take output."""
        if task.takes_batches:
            for batch in batches_in_order(spool.blobs, self._topics_first(), _ROWS_PER_BATCH, _BYTES_PER_BATCH):
                for part in task.ingest_batch(batch):
                    yield task.process_batch(part)
            return
        records = task.ingest(records_in_order(spool.blobs, self._topics_first()))
        while count := task.process(records, outputs):
            yield count

    def _claim(self, query_id: str) -> None:
        location, change = self.state.location, self.change
        claimed = str(location), query_id, "" if change is None else self.state.run
        if claimed not in _claimed:
            claim(location, query_id)
            if change is not None:
                agree_on_metadata(location, change.metadata, accept_topology_change=change.accepted)
            _claimed.add(claimed)
