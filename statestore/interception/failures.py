"""What is done about records that can't be read, processed, written, or that an interceptor refuses.

Source: Kafka Streams' exception handlers (KIP-161, KIP-210, KIP-1033), its dead letter queue (KIP-1034), and for the
names of the headers Kafka Connect's DeadLetterQueueReporter (KIP-298).
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from statestore.errors import DataException, RecordRefusedError
from statestore.errors.readable import content_facts, facts_in_words, record_place
from statestore.headers.record_headers import Headers
from statestore.headers.topic_columns import Send, SourceFields
from statestore.interception.interceptor import Interceptor, tolerance_of

Refusal: TypeAlias = "RecordRefusedError | DataException"
"""Why an interceptor does not take a record: it refuses it, or data can't be converted."""

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


def stage_of(error: Exception, otherwise: FailureStage) -> FailureStage:
    """Return the stage at which a record failed: a converter may read late, as that of typed headers in a processor."""
    is_unreadable = isinstance(error, DataException) and error.is_unreadable
    return FailureStage.DESERIALIZATION if is_unreadable else otherwise


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


class OnFailure(Enum):
    """What to do. Source: Kafka's handlers' `Response`, FAIL and RESUME, with dead letters."""

    FAIL = "fail"
    """End the query; nothing of the batch is committed."""
    CONTINUE = "continue"
    """Leave the record out, count it and log it."""
    DEAD_LETTER = "dead_letter"
    """Leave it out, and put it out to the topic for dead letters as it came, with what was wrong in headers."""


Handler: TypeAlias = "OnFailure | str | Callable[[FailedRecord], OnFailure | str]"
"""What to do, by itself or by its word, or a function of the record that says so. It travels to the executors."""

_LOG = logging.getLogger(__name__)
_FAILURES_LOGGED: Final = 10
_TOPIC: Final = "topic:"
_WORDS: Final = {each.value: each for each in OnFailure}


@dataclass(frozen=True, kw_only=True)
class FailureHandling:
    """What a query does about records that fail.

    Of each kind of failure "fail" stops the query; "continue" leaves the record out, counts it in the figures and logs
    it, and commit pointers count those that no serde could read; "dead_letter" puts it out to the topic for dead
    letters as well, and so does "topic:NAME", which names that. Or a function of the FailedRecord that returns one of
    the words, and travels to the executors. None is "fail".

    Raises ValueError for unknown words, for "dead_letter" without a topic for dead letters, and for two topics;
    TypeError for what is neither a word nor a function.
    """

    deserialization: Handler | None = None
    """Of what the serdes of a source, or the converters of a ConnectIngest, can't read."""
    processing: Handler | None = None
    """Of records that a processor raises an error for. What it had written and forwarded by then stays, as in Kafka
    Streams. For processors of single records.
    """
    production: Handler | None = None
    """Of what a sink's serdes can't write."""
    refusal: Handler | None = None
    """Of records that an interceptor refuses, or a step of a ConnectIngest can't be done to. None is "dead_letter" if
    there is a topic for them, else "fail".
    """
    dead_letters: DeadLetters | str | None = None
    """The topic for dead letters."""
    logs_all: bool = False
    """Whether each record that is left out is logged, and not only the first of a task."""

    def around(self, chain: Iterable[Interceptor]) -> FailureHandling:
        """Return this, and what a connector's configuration in a chain says of what is not said here.

        A configuration says nothing of processors and sinks. Records that it lets go are dead letters if there is a
        topic for them. Warns if it names another topic than the query.
        """
        if (tolerance := tolerance_of(chain)) is None:
            return self
        made = replace(self, logs_all=tolerance.logs_all)
        if not tolerance.is_on:
            return made
        letters = DeadLetters.of(self.dead_letters)
        if letters is None and tolerance.topic:
            name = tolerance.name or DeadLetters.name
            letters = DeadLetters(tolerance.topic, name, with_context=tolerance.with_context)
        elif tolerance.topic not in ("", None if letters is None else letters.topic):
            tolerance.warn_of_topic()
        left_out = OnFailure.CONTINUE if letters is None else OnFailure.DEAD_LETTER
        unread, refused = self.deserialization or left_out, self.refusal or left_out
        return replace(made, deserialization=unread, refusal=refused, dead_letters=letters)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dead_letters", DeadLetters.of(self.dead_letters))
        for name in _HANDLERS.values():
            handler = getattr(self, name)
            if isinstance(handler, str):
                object.__setattr__(self, name, self._word_of(name, handler))
            elif handler is not None and not isinstance(handler, OnFailure) and not callable(handler):
                raise TypeError(f"{name} must be one of {', '.join(_WORDS)}, or a function, not {handler!r}")
        for name in _HANDLERS.values():
            if getattr(self, name) is OnFailure.DEAD_LETTER and self.dead_letters is None:
                raise ValueError(f'{name}="dead_letter" needs a topic: dead_letters="..."')

    def _word_of(self, parameter: str, word: str) -> OnFailure:
        """Return what a word says; the topic that it may name is that for dead letters from then on."""
        topic = word.removeprefix(_TOPIC)
        if topic in ("", word):
            return _word(parameter, word)
        letters = DeadLetters.of(self.dead_letters) or DeadLetters(topic)
        if letters.topic != topic:
            raise ValueError(
                f"{parameter}={word!r}: there is one topic for dead letters, and {letters.topic!r} is named"
            )
        object.__setattr__(self, "dead_letters", letters)
        return OnFailure.DEAD_LETTER

    @property
    def letters(self) -> DeadLetters:
        """How dead letters are made, also those that go to a topic for audit and have no other."""
        return DeadLetters.of(self.dead_letters) or DeadLetters("")

    @property
    def keeps_on(self) -> frozenset[FailureStage]:
        """Where a record may fail without ending the query."""
        handlers = {stage: getattr(self, name) for stage, name in _HANDLERS.items()}
        handlers[FailureStage.REFUSAL] = self.refusal or OnFailure.DEAD_LETTER
        return frozenset(stage for stage, handler in handlers.items() if handler not in (None, OnFailure.FAIL))

    def decide(self, failed: FailedRecord) -> OnFailure:
        """Return what is to be done about a record. Raises what a function raises, ValueError for a word it made up."""
        if (handler := getattr(self, _HANDLERS[failed.stage])) is None:
            is_letter = failed.stage is FailureStage.REFUSAL and self.topic_of(failed) is not None
            return OnFailure.DEAD_LETTER if is_letter else OnFailure.FAIL
        if isinstance(handler, OnFailure):
            return handler
        decision = handler(failed)
        decision = decision if isinstance(decision, OnFailure) else _word(_HANDLERS[failed.stage], decision)
        if decision is OnFailure.DEAD_LETTER and self.topic_of(failed) is None:
            raise ValueError(f'{_HANDLERS[failed.stage]} returned "dead_letter", which needs a topic: dead_letters')
        return decision

    def topic_of(self, failed: FailedRecord) -> str | None:
        """Return the topic that a dead letter goes to; None if there is none."""
        if isinstance(failed.error, RecordRefusedError) and failed.error.audit_topic is not None:
            return failed.error.audit_topic
        return self.letters.topic or None


_HANDLERS: Final = {stage: stage.name.lower() for stage in FailureStage}

FAIL_ALWAYS: Final = FailureHandling()
"""The default: every failure ends the query."""


def _word(parameter: str, word: Any) -> OnFailure:
    if word not in _WORDS:
        raise ValueError(f"{parameter} must be one of {', '.join(_WORDS)}, not {word!r}")
    return _WORDS[word]


OnRefusal: TypeAlias = "Callable[[SourceFields | None, str, Refusal], None]"
"""Takes a record as it came, None for what belongs to none, the interceptor that does not take it, and why.

It raises what is to end the task."""


def raise_refusal(record: object, interceptor: str, error: Refusal) -> None:
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
        self, stage: FailureStage, node: str, error: Exception, source: SourceFields | None, time_ms: int = 0
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
            topic = self._handling.topic_of(failed)
            assert topic is not None
            self.dead_letters += 1
            headers = self._handling.letters.headers(failed, self._shard)
            self._send(topic, failed.timestamp_ms, failed.key, failed.value, headers.to_bytes())
        return True


def _failed(
    stage: FailureStage, node: str, error: Exception, source: SourceFields | None, time_ms: int
) -> FailedRecord:
    if source is None:
        return FailedRecord(stage, node, error, None, None, None, max(0, time_ms), None, None, Headers())
    topic, partition, offset, timestamp_ms, key, value, header_bytes = source
    place: tuple[str, int | None, int | None] = (topic, partition, offset) if offset >= 0 else (topic, None, None)
    return FailedRecord(stage, node, error, *place, timestamp_ms, key, value, Headers.from_bytes(header_bytes))
