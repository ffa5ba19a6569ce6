"""Runs a topology in a test driver: record after record through one task, each committed before the next."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from statestore.errors import DriverError
from statestore.errors.harness import DriverFailedError
from statestore.errors.run import InvalidTimestampError, UnknownTopicError
from statestore.headers.topic_columns import SinkFields, SourceFields, source_batch
from statestore.interception.chain import Chain
from statestore.interception.failures import FailureHandling
from statestore.processor.processor import DROPPED_RECORDS
from statestore.processor.task import Task
from statestore.processor.topology import Topology
from statestore.recovery.commit.pointer_fields import RecordedPunctuations
from statestore.testing.driver_state import DriverState
from statestore.testing.topic_logs import OutputLog, PipedAgain, ReadableTopic
from statestore.testing.topics import PipedRecord

_LOG = logging.getLogger(__name__)
_PARTITION = 0
# The timestamp that is logged for a write of the test itself, outside of any record. Kafka's driver does the same.
_OUTSIDE_MS = 0


class DriverRun:
    """A topology on the state of a driver. Outputs, and what waits to be piped again, stay from start to start.

    After an error in the topology, nothing of the record that caused it is committed, and the topology is stopped.
    """

    declared: Topology
    """What was started last."""
    topology: Topology
    """The same, with the interceptors around it."""

    def __init__(self, state: DriverState, handling: FailureHandling, chain: Chain) -> None:
        self.failure: str | None = None
        """The error that stopped the topology; None if it runs."""
        self._state = state
        self._handling = handling
        self._chain = chain
        self._outputs: dict[str, OutputLog] = {}
        self._global_records: dict[str, list[SourceFields]] = {}
        self._again = PipedAgain()
        self._piped_again: SinkFields | None = None
        """The record that is being processed, if it was piped again."""
        self._is_running = False
        """Whether the task has begun something that is not committed yet."""

    def start(self, topology: Topology, *, anew: bool = False) -> None:
        """Open the stores, `anew` if nothing is on the disk, make the task, and process what waits.

        Raises what opening a store and the topology's processors raise; then the topology is stopped.
        """
        try:
            around = topology.with_interceptors(self._chain)
            self._state.open(around, anew=anew)
            self.declared, self.topology = topology, around
            self.failure = None
            self._note_topics(around)
            self._make_task(around)
            try:
                self._fill_global_stores(topology)
                self._commit()
                self._process(self._commit_each())
            except BaseException as failure:
                self._fail(failure)
                self._state.close()
                raise
            self._state.context.leave_record(_OUTSIDE_MS)
        except BaseException as failure:
            self.failure = _describe_failure(failure)
            raise

    def stop(self) -> None:
        """Close processors and stores, and keep what was written outside of records. Raises ProcessorError."""
        try:
            if self.failure is None:
                try:
                    self._task.close()
                finally:
                    self._commit_state()
        except BaseException as failure:
            self.failure = _describe_failure(failure)
            raise
        finally:
            self._state.close()

    def pipe(self, topic: str, records: Iterator[PipedRecord]) -> None:
        """Process records of a topic, and after each all that it leads to. Raises UnknownTopicError."""
        with self._working(topic):
            self._process(self._commit_each(topic, records))

    def pipe_micro_batch(self, topic: str, records: Iterator[PipedRecord]) -> None:
        """Process records of a topic, commit them together, then process what they led to. Raises UnknownTopicError."""
        with self._working(topic):
            first = self._state.progress.offsets.get(topic, 0)
            batch = [(topic, _PARTITION, first + number, *record) for number, record in enumerate(records)]
            self._is_running = True
            if batch:
                self._process_batch(batch)
            self._commit(is_micro_batch=True)
            self._note_committed(batch)
            self._process(self._commit_each())

    @contextmanager
    def _working(self, topic: str | None = None) -> Iterator[None]:
        """Let the task work inside of the `with`, on records of `topic` if there are some."""
        self._require_ready()
        if topic is not None and topic not in self._reads and not self._reads_all:
            raise UnknownTopicError(topic=topic, sources=sorted(self._reads))
        self._commit_state()  # writes of the test itself don't belong to the records that come next
        try:
            yield
        except BaseException as failure:
            # What the input iterator raises comes between two records: the topology has not failed.
            if self._is_running or topic is None:
                self._fail(failure)
            raise
        finally:
            self._state.context.leave_record(_OUTSIDE_MS)

    def advance_wall_clock(self, advance_ms: int) -> None:
        """Advance the wall clock, run the punctuators that become due, and process what they lead to."""
        with self._working():
            self._is_running = True
            self._task.advance_wall_clock(self._state.context.system_time_ms + advance_ms)
            self._commit()
            self._process(self._commit_each())

    def readable(self, topic: str) -> ReadableTopic | None:
        """Return the records of a topic, None if there never were any."""
        output = self._outputs.get(topic)
        if output is not None:
            return output
        log = self._changelogs.get(topic)
        return log if log is not None and log.was_written else None

    def produced_topics(self) -> set[str]:
        """Return the names of the topics that were written to so far, changelogs included."""
        return {*self._outputs, *(topic for topic, log in self._changelogs.items() if log.was_written)}

    def metrics(self) -> dict[str, float]:
        """Return counts since the start by Kafka's names, and `STORE/METRIC` of stores that are measured."""
        stores, skipped, counted = self._state.stores, self._task.skipped_records, self._task.counted
        left_out = sum(number for name, number in counted.items() if name.endswith(f".{DROPPED_RECORDS}"))
        found: dict[str, float] = {
            "process-total": self._processed,
            "punctuate-total": self._task.punctuation_count,
            "commit-total": self._commits,
            "skipped-records-total": skipped,
            "dropped-records-total": skipped + left_out + sum(store.dropped_records for store in stores.values()),
            **{f"failed-records/{error}": count for error, count in self._task.failures.by_error.items()},
            **counted,
        }
        for name, store in stores.items():
            if store.metrics is not None:
                found.update({f"{name}/{metric}": value for metric, value in store.metrics.values().items()})
        return found

    def _note_topics(self, topology: Topology) -> None:
        self._reads = {topic for source in topology.sources.values() for topic in source.topics or ()}
        self._reads_all = any(source.topics is None for source in topology.sources.values())
        self._global_topics = frozenset(topology.global_stores.values())
        application_id = self._state.application_id
        self._own_topics = {topic: f"{application_id}-{topic}" for topic in topology.repartition_topics}
        self._changelogs = {log.topic: log for log in self._state.logs.values()}
        self._read_changelogs = [log for log in self._state.logging if log.topic in self._reads]

    def _make_task(self, topology: Topology) -> None:
        state = self._state
        state.context.leave_record(_OUTSIDE_MS)
        self._processed = self._commits = 0
        try:
            self._task = Task(
                topology,
                0,
                state.stores,
                state.context,
                handling=self._handling,
                punctuations=state.progress.punctuations,
                processor_metadata=state.progress.processor_metadata,
            )
        except BaseException:
            state.discard()
            state.close()
            raise
        self._on_changelog = self._task.on_changelog
        # Schedules are made in init() alone.
        self._has_schedules = bool(self._task.punctuations())

    def _fill_global_stores(self, topology: Topology) -> None:
        """Process the records of global topics again for global stores that were opened empty."""
        for name, topic in topology.global_stores.items():
            if name in self._state.emptied:
                self._process(self._global_records.get(topic, ()))

    def _process(self, records: Iterable[SourceFields]) -> None:
        self._task.process(self._task.ingest(records))

    def _process_batch(self, batch: list[SourceFields]) -> None:
        for part in self._task.ingest_batch(source_batch(batch)):
            self._task.process_batch(part)

    def _commit_each(self, topic: str = "", inputs: Iterator[PipedRecord] | None = None) -> Iterator[SourceFields]:
        """Yield what waits, then the records of `topic` and after each what waits; commit when the task is back."""
        again, offsets = self._again, self._state.progress.offsets
        while True:
            if again:
                source, timestamp_ms, key, value, header_bytes = self._piped_again = again.take()
            else:
                following = None if inputs is None else next(inputs, None)
                if following is None:
                    return
                source = topic
                timestamp_ms, key, value, header_bytes = following
            offset = offsets.get(source, 0)
            if timestamp_ms < 0:
                self._piped_again = None  # a record with such a timestamp is not put back
                raise InvalidTimestampError(
                    topic=source, partition=_PARTITION, offset=offset, timestamp_ms=timestamp_ms
                )
            record = (source, _PARTITION, offset, timestamp_ms, key, value, header_bytes)
            self._is_running = True
            yield record
            self._commit()
            self._note_committed([record])

    def _note_committed(self, records: Sequence[SourceFields]) -> None:
        """Count records of a topic, once they are committed: those that are not have their offsets again."""
        for topic, _, offset, *_ in records:
            self._state.progress.offsets[topic] = offset + 1
        if records and records[0][0] in self._global_topics:
            self._global_records.setdefault(records[0][0], []).extend(records)
        else:
            self._processed += len(records)

    def _commit(self, *, is_micro_batch: bool = False) -> None:
        """Commit what the task did, and make it readable."""
        task = self._task
        if task.holds_back:
            task.finish_batch()
        self._commit_state(task.punctuations() if self._has_schedules else None, is_micro_batch=is_micro_batch)
        outputs = self._outputs
        for output in task.outputs:
            topic = output[0]
            name = self._own_topics.get(topic, topic)
            if name not in outputs:
                outputs[name] = OutputLog()
            outputs[name].append((name, *output[1:]))
            if topic in self._reads:
                self._again.add(output, is_global=topic in self._global_topics)
        task.outputs.clear()
        self._commits += 1
        self._piped_again = None
        self._is_running = False

    def _commit_state(self, punctuations: RecordedPunctuations | None = None, *, is_micro_batch: bool = False) -> None:
        """Commit what was written, processor metadata too, and when schedules are due next; None means as before."""
        metadata = self._task.processor_metadata.changes
        self._state.commit(punctuations, metadata, self._on_changelog, is_micro_batch=is_micro_batch)
        for log in self._read_changelogs:
            for record in log.new_records():
                self._again.add(record, is_global=log.topic in self._global_topics)

    def _fail(self, failure: BaseException) -> None:
        """Go back to the last commit, and close the processors: the task must not be used again."""
        self.failure = _describe_failure(failure)
        self._is_running = False
        if self._piped_again is not None:
            self._again.put_back(self._piped_again, is_global=self._piped_again[0] in self._global_topics)
            self._piped_again = None
        self._task.abandon()
        self._state.discard()

    def _require_ready(self) -> None:
        if self.failure is not None:
            raise DriverFailedError(self.failure)
        if self._is_running:
            raise DriverError("the test driver is processing a record: nothing can be piped from within the topology")


def _describe_failure(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}"
