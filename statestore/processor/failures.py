"""What a task does about records that fail, and what it has counted of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from statestore.errors import ProcessorError
from statestore.headers import Headers
from statestore.middleware.failed_record import FailedRecord, FailureStage, Refusal
from statestore.middleware.failures import FailureHandling, OnFailure
from statestore.processor.receivers import Send, SourceRecord

_LOG = logging.getLogger(__name__)
_FAILURES_LOGGED: Final = 10

OnRefusal: TypeAlias = "Callable[[SourceRecord | None, str, Refusal], None]"
"""Takes a record as it came, None for what belongs to none, the interceptor that does not take it, and why.

What ends the task it raises."""


def raise_refusal(source: SourceRecord | None, interceptor: str, error: Refusal) -> None:
    """Raise what a record was refused for."""
    raise error


class TaskFailures:
    """Decides about each record that fails, puts dead letters out, and counts."""

    def __init__(self, handling: FailureHandling, shard: int, send: Send) -> None:
        self._handling = handling
        self._shard = shard
        self._send = send
        self.keeps_on: Final = handling.keeps_on
        """The stages at which a record may fail without ending the task."""
        self.by_stage: Final[Counter[FailureStage]] = Counter()
        """How many records failed at each stage, and were left out."""
        self.by_error: Final[Counter[str]] = Counter()
        """How many failed with each class of error."""
        self.dead_letters = 0

    def goes_on(
        self, stage: FailureStage, node: str, error: Exception, source: SourceRecord | None, time_ms: int = 0
    ) -> bool:
        """Return whether the task goes on without a record, `source` as it came, which then was taken care of.

        None for a source is what belongs to no record, at `time_ms`. False means that the error is to be raised.
        """
        if stage not in self.keeps_on:
            return False
        failed = _failed(stage, node, error, source, time_ms)
        decision = self._handling.decide(failed)
        if decision is OnFailure.FAIL:
            return False
        self.by_stage[stage] += 1
        self.by_error[type(error).__name__] += 1
        if self._handling.logs_all or self.by_stage.total() <= _FAILURES_LOGGED:
            words = "left out: %s (%s), which failed at %r: %s: %s"
            _LOG.warning(words, failed.place, failed.facts, node, type(error).__name__, error)
        if decision is OnFailure.DEAD_LETTER:
            self._put_out(failed)
        return True

    def _put_out(self, failed: FailedRecord) -> None:
        topic = self._handling.topic_of(failed)
        assert topic is not None
        self.dead_letters += 1
        headers = self._handling.letters.headers(failed, self._shard)
        self._send(topic, failed.timestamp_ms, failed.key, failed.value, headers.to_bytes())


def cause_of(error: ProcessorError) -> Exception:
    """Return what user code raised; the error itself if that is not known."""
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def _failed(
    stage: FailureStage, node: str, error: Exception, source: SourceRecord | None, time_ms: int
) -> FailedRecord:
    if source is None:
        return FailedRecord(stage, node, error, None, None, None, max(0, time_ms), None, None, Headers())
    topic, partition, offset, timestamp_ms, key, value, header_bytes = source
    headers = Headers.from_bytes(header_bytes)
    known = offset >= 0
    return FailedRecord(
        stage,
        node,
        error,
        topic,
        partition if known else None,
        offset if known else None,
        timestamp_ms,
        key,
        value,
        headers,
    )
