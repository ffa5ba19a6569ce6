"""A record that failed: what handlers of failures are asked about, and how it is put out as a dead letter.

Source: Kafka Connect's DeadLetterQueueReporter (KIP-298), for the names of the headers.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from statestore.errors import DataException, RecordRefusedError
from statestore.errors.readable import content_facts, facts_in_words, record_place
from statestore.headers.record_headers import Headers

Refusal: TypeAlias = "RecordRefusedError | DataException"
"""Why an interceptor does not take a record: for a reason of its own, or as it can't be what it is to be."""

_ERRORS: Final = "statestore.errors"
_MESSAGE_BYTES: Final = 4 << 10
_STACKTRACE_BYTES: Final = 16 << 10


class FailureStage(Enum):
    """Where a record failed. The values are the stages of Kafka Connect, which dead letters name."""

    REFUSAL = "TRANSFORMATION"
    """An interceptor refused it, or a transformation could not be done to it."""
    DESERIALIZATION = "VALUE_CONVERTER"
    """A source's serdes, or a converter, could not read it."""
    PROCESSING = "TASK_PUT"
    """A processor raised."""
    PRODUCTION = "KAFKA_PRODUCE"
    """A sink's serdes could not write what was forwarded to it."""


@dataclass(frozen=True)
class FailedRecord:
    """A record that failed, as it came from its topic, and how."""

    stage: FailureStage
    node: str
    """The source, processor, sink or interceptor."""
    error: Exception
    """What was raised; of user code, what it raised itself."""
    topic: str | None
    """None where no record of a topic was being processed: in a punctuation."""
    partition: int | None
    """None, as the offset, for a record that is on its way to a topic."""
    offset: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def is_refusal(self) -> bool:
        """Whether an interceptor refused it, for a reason that its class says."""
        return isinstance(self.error, RecordRefusedError)

    @property
    def place(self) -> str:
        """Where it came from, in words."""
        if self.topic is None:
            return "what belongs to no record"
        if self.offset is None:
            return f"a record to topic {self.topic}"
        return record_place(self.topic, self.partition, self.offset)

    @property
    def facts(self) -> str:
        """What else tells it from others, in words: its key's digest, sizes and time. Never what it holds."""
        content = content_facts(self.key, self.value, self.headers.to_bytes())
        return facts_in_words({**content, "timestamp_ms": self.timestamp_ms})


@dataclass(frozen=True)
class DeadLetters:
    """Where dead letters go, and how they are named.

    Their key, value, timestamp and headers are those of the record as it came; the headers below are added, as text.
    Those of these names that it brought along are removed: nobody else can say what was wrong with it.
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
    """The stage of Connect at which it failed: the value of a FailureStage."""
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
        facts = {
            self.TOPIC: failed.topic,
            self.PARTITION: failed.partition,
            self.OFFSET: failed.offset,
            self.CONNECTOR_NAME: self.name,
            self.TASK_ID: shard,
            self.STAGE: failed.stage.value,
            self.CLASS_NAME: failed.node,
            self.EXCEPTION_CLASS_NAME: _error_class(failed.error),
        }
        for name, fact in facts.items():
            if fact is not None:
                headers.add(name, str(fact).encode())
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
