"""A record that failed: what handlers of failures are asked about, and dead letters say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from statestore.errors import DataException, RecordRefusedError
from statestore.errors.readable import content_facts, facts_in_words, record_place
from statestore.headers.record_headers import Headers

Refusal: TypeAlias = "RecordRefusedError | DataException"
"""Why an interceptor does not take a record: for a reason of its own, or as it can't be what it is to be."""


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


def stage_of(error: Refusal) -> FailureStage:
    """Return where a record failed that an interceptor does not take."""
    is_unreadable = isinstance(error, DataException) and error.is_unreadable
    return FailureStage.DESERIALIZATION if is_unreadable else FailureStage.REFUSAL


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
