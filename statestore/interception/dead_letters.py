"""Dead letters: records that could not be processed, put out as they came, with what was wrong in headers.

Source: Kafka Connect's DeadLetterQueueReporter (KIP-298), for the names of the headers.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import ClassVar, Final

from statestore.headers.record_headers import Headers
from statestore.interception.failed_record import FailedRecord

_ERRORS: Final = "statestore.errors"
_MESSAGE_BYTES: Final = 4 << 10
_STACKTRACE_BYTES: Final = 16 << 10


@dataclass(frozen=True)
class DeadLetters:
    """Where dead letters go, and how they are named.

    Their key, value, timestamp and headers are those of the record as it came; the headers below are added, as text.
    Those of these names that it brought along are removed: nobody else can say what was wrong with it.

        __connect.errors.topic, .partition, .offset    where it came from
        __connect.errors.connector.name, .task.id      `name`, and the shard
        __connect.errors.stage                         a stage of Connect: TRANSFORMATION for what interceptors refuse,
                                                       VALUE_CONVERTER, TASK_PUT (processing), KAFKA_PRODUCE
        __connect.errors.class.name                    the source, processor, sink or interceptor
        __connect.errors.exception.class.name, .message, .stacktrace    the error; a refusal has no stack trace
    """

    PREFIX: ClassVar[str] = "__connect.errors."
    """What the names of all headers of dead letters begin with."""
    TOPIC: ClassVar[str] = PREFIX + "topic"
    """The topic that a record came from."""
    PARTITION: ClassVar[str] = PREFIX + "partition"
    """The partition that it came from."""
    OFFSET: ClassVar[str] = PREFIX + "offset"
    """The offset that it had there."""
    CONNECTOR_NAME: ClassVar[str] = PREFIX + "connector.name"
    """What a query calls itself: `DeadLetters.name`."""
    TASK_ID: ClassVar[str] = PREFIX + "task.id"
    """The shard."""
    STAGE: ClassVar[str] = PREFIX + "stage"
    """The stage of Connect at which it failed: see FailureStage."""
    CLASS_NAME: ClassVar[str] = PREFIX + "class.name"
    """The source, processor, sink or interceptor."""
    EXCEPTION_CLASS_NAME: ClassVar[str] = PREFIX + "exception.class.name"
    """The class of the error."""
    EXCEPTION_MESSAGE: ClassVar[str] = PREFIX + "exception.message"
    """Its text."""
    EXCEPTION_STACKTRACE: ClassVar[str] = PREFIX + "exception.stacktrace"
    """Its stack trace, unless it is a refusal."""

    topic: str
    name: str = "statestore"
    with_stacktrace: bool = True
    with_context: bool = True
    """Whether any of these headers are added."""

    @classmethod
    def of(cls, given: DeadLetters | str | None) -> DeadLetters | None:
        """Return dead letters for a topic; those that are given, and None, as they are. Raises TypeError."""
        if given is None or isinstance(given, DeadLetters):
            return given
        if not isinstance(given, str) or not given:
            raise TypeError(f"dead_letters must be the name of a topic, or DeadLetters, not {given!r}")
        return cls(given)

    def headers(self, failed: FailedRecord, shard: int) -> Headers:
        """Return the headers of a dead letter: those of the record, and what was wrong."""
        headers = failed.headers.copy()
        for header in {header.key for header in headers if header.key.startswith(self.PREFIX)}:
            headers.remove(header)
        if not self.with_context:
            return headers
        for name, place in (
            (self.TOPIC, failed.topic),
            (self.PARTITION, failed.partition),
            (self.OFFSET, failed.offset),
        ):
            if place is not None:
                headers.add(name, str(place).encode())
        headers.add(self.CONNECTOR_NAME, self.name.encode())
        headers.add(self.TASK_ID, str(shard).encode())
        headers.add(self.STAGE, failed.stage.value.encode())
        headers.add(self.CLASS_NAME, failed.node.encode())
        headers.add(self.EXCEPTION_CLASS_NAME, _error_class(failed.error).encode())
        headers.add(self.EXCEPTION_MESSAGE, _text(str(failed.error), _MESSAGE_BYTES))
        if self.with_stacktrace and failed.error.__traceback__ is not None and not failed.is_refusal:
            stacktrace = "".join(traceback.format_exception(failed.error))
            headers.add(self.EXCEPTION_STACKTRACE, _text(stacktrace, _STACKTRACE_BYTES))
        return headers


def _error_class(error: BaseException) -> str:
    """Return the name of an error's class with its module; of this project's errors, the module that all are in."""
    kind = type(error)
    module = _ERRORS if kind.__module__.startswith(_ERRORS) else kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _text(text: str, limit_bytes: int) -> bytes:
    """Return a text in UTF-8, cut to a limit between two characters."""
    return text.encode(errors="replace")[:limit_bytes].decode(errors="ignore").encode()
