"""Records with typed keys, values and headers: what converters and transforms work on.

Source: Kafka Connect's `ConnectRecord`, `SourceRecord` and `SinkRecord`, with the headers that KIP-145 gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import EllipsisType
from typing import Any, TypeVar

from statestore.connect.header import ConnectHeader
from statestore.connect.headers import ConnectHeaders
from statestore.connect.schema import Schema, same_value
from statestore.headers import TimestampType

_Record = TypeVar("_Record", bound="ConnectRecord")


@dataclass(frozen=True, eq=False, kw_only=True)
class ConnectRecord:
    """A record with typed headers, which are never None. Equal to one of the same class with all fields the same.

    ConnectHeaders are held as they are, not copied; of other headers a list is made, of None an empty one.
    """

    topic: str | None = field(kw_only=False)
    kafka_partition: int | None = None
    key_schema: Schema | None = None
    key: Any = None
    value_schema: Schema | None = None
    value: Any = None
    timestamp_ms: int | None = None
    """Milliseconds since the epoch; None if there is none."""
    headers: ConnectHeaders = field(default_factory=ConnectHeaders)

    def __post_init__(self) -> None:
        if not isinstance(self.headers, ConnectHeaders):
            object.__setattr__(self, "headers", ConnectHeaders(self.headers))

    def new_record(
        self: _Record,
        topic: str | EllipsisType | None = ...,
        kafka_partition: int | EllipsisType | None = ...,
        key_schema: Schema | EllipsisType | None = ...,
        key: Any = ...,
        value_schema: Schema | EllipsisType | None = ...,
        value: Any = ...,
        timestamp_ms: int | EllipsisType | None = ...,
        headers: Iterable[ConnectHeader] | EllipsisType | None = ...,
    ) -> _Record:
        """Return a record like this one, but for what is given. Headers that are not given are a list of its own."""
        given = {
            "topic": topic,
            "kafka_partition": kafka_partition,
            "key_schema": key_schema,
            "key": key,
            "value_schema": value_schema,
            "value": value,
            "timestamp_ms": timestamp_ms,
            "headers": self.headers.duplicate() if headers is ... else headers,
        }
        return replace(self, **{name: each for name, each in given.items() if each is not ...})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(same_value(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    def __hash__(self) -> int:
        # Keys and values may be lists and maps.
        return hash((self.topic, self.kafka_partition, self.key_schema, self.value_schema, self.headers))


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceRecord(ConnectRecord):
    """A record on its way into Kafka. Where it came from is told by maps that its source understands."""

    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SinkRecord(ConnectRecord):
    """A record that came out of Kafka. What was original stays the same in records that are made of it.

    An original that is not given is as the record's own.
    """

    kafka_offset: int
    timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE
    original_topic: str | None = None
    original_kafka_partition: int | None = None
    original_kafka_offset: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.original_topic is None:
            object.__setattr__(self, "original_topic", self.topic)
        if self.original_kafka_partition is None:
            object.__setattr__(self, "original_kafka_partition", self.kafka_partition)
        if self.original_kafka_offset is None:
            object.__setattr__(self, "original_kafka_offset", self.kafka_offset)
