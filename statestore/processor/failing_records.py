"""What a task does about a record that fails: FailureHandling leaves it out, or the task ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.errors import (
    DeserializationError,
    ProcessorError,
    RecordRefusedError,
    SerializationError,
)
from statestore.errors.readable import facts_in_words, record_facts, record_place, shape_of, user_line
from statestore.headers.topic_columns import SourceFields
from statestore.interception.failures import FailureStage, Refusal, TaskFailures, stage_of
from statestore.processor.context import TaskRecordContext
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.nodes import SinkNode, SourceNode
from statestore.processor.record import Record


class FailingRecords:
    """Takes care of the records of one task that fail."""

    def __init__(
        self, failures: TaskFailures, context: TaskRecordContext, interceptors: Callable[[], TaskInterceptors]
    ) -> None:
        self._failures = failures
        self._context = context
        self._interceptors = interceptors
        self._ending: Exception | None = None
        """What ends the task by an earlier decision: a processor that it comes through did not fail."""

    def current(self) -> SourceFields | None:
        """Return the input record that is being processed, as it came if that is at hand; None if there is none."""
        passed, context = self._interceptors().ingest.current, self._context
        # One that was held back is resumed after others were passed.
        return passed if passed is not None and passed[:3] == context.metadata else context.source

    def _original(self) -> SourceFields | None:
        """Return the input record that is being processed, as it came; None if there is none, or it is gone."""
        place = self._context.metadata
        return None if place is None else self._interceptors().ingest.original(*place) or self._context.came()

    def failed(self, record: SourceFields, error: ProcessorError) -> None:
        """Take care of a record that a processor failed on, or raise the error."""
        source = self._interceptors().ingest.original(*record[:3]) or record
        is_users = error.node not in self._interceptors().names
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        is_users = is_users and cause is not self._ending
        if not is_users or not self._goes_on(stage_of(cause, FailureStage.PROCESSING), error.node, cause, source):
            raise error

    def unreadable(self, node: SourceNode, source: SourceFields, cause: DeserializationError) -> None:
        """Take care of a record that no serde can read, or raise an error that says which it is."""
        topic, partition, offset = source[:3]
        came = self._interceptors().ingest.original(topic, partition, offset) or source
        if not self._goes_on(FailureStage.DESERIALIZATION, node.name, cause, came):
            facts = {**record_facts(*came), "at": user_line(cause.__cause__ or cause)}
            raise DeserializationError(
                f"source {node.name!r} can't read {record_place(topic, partition, offset)} "
                f"({facts_in_words(facts)}): {cause}. Nothing was committed. Correct the record or the serde, or start "
                'with FailureHandling(deserialization="continue") to leave such records out, or "dead_letter" to send '
                "them to a topic of their own",
                **facts,
            ) from cause

    def unwritable(self, node: SinkNode, record: Record[Any, Any], cause: SerializationError) -> None:
        """Take care of what a sink's serdes can't write, or raise an error that names the input record."""
        source, time_ms = self._original(), record.timestamp_ms
        if not self._goes_on(FailureStage.PRODUCTION, node.name, cause, source, time_ms):
            what = f"a record whose key is {shape_of(record.key)} and whose value is {shape_of(record.value)}"
            facts = {} if source is None else record_facts(*source)
            self._ending = SerializationError(f"sink {node.name!r} can't write {what}: {cause}", **facts)
            raise self._ending from cause

    def refused(self, source: SourceFields | None, interceptor: str, error: Refusal) -> None:
        """Take care of a record that an interceptor refuses, or raise the refusal."""
        source = source or self._original()
        stage = stage_of(error, FailureStage.REFUSAL)
        if not self._goes_on(stage, interceptor, error, source, self._context.timestamp_ms):
            if source is not None and isinstance(error, RecordRefusedError):
                error.name_record(**record_facts(*source))
            self._ending = error
            raise error

    def _goes_on(
        self, stage: FailureStage, node: str, error: Exception, source: SourceFields | None, time_ms: int = 0
    ) -> bool:
        is_left_out = self._failures.goes_on(stage, node, error, source, time_ms)
        if is_left_out:
            self._interceptors().show_failure(error)
        return is_left_out
