"""What each kind of node does with a record: the functions that a task strings together.

Headers are parsed by nobody here. They are copied, which parses nothing, only for a serde that may add to them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from statestore.errors import (
    DeserializationError,
    InvalidTimestampError,
    LocalStateCorruptedError,
    ProcessorError,
    SerializationError,
)
from statestore.format.serde import Serde, Serdes
from statestore.headers import Headers
from statestore.processor.context import Receiver, TaskRecordContext, processor_error
from statestore.processor.nodes import SinkNode, SourceNode
from statestore.processor.record import Record

T = TypeVar("T")

_INT64_RANGE = range(-(2**63), 2**63)

SourceRecord: TypeAlias = "tuple[str, int, int, int, bytes | None, bytes | None, bytes]"
"""A record as it comes from a topic: topic, partition, offset, timestamp_ms, key, value, header bytes (KIP-1271).

A plain tuple, as is SinkRecord: there is one of each for every record.
"""

SinkRecord: TypeAlias = "tuple[str, int, bytes | None, bytes | None, bytes]"
"""A record as it goes to a topic: topic, timestamp_ms, key, value, header bytes (KIP-1271)."""

_WithHeaders = Callable[[Any, Headers], Any]
_Functions = tuple[_WithHeaders, _WithHeaders]
SourceReceiver = Callable[[SourceRecord], None]
OnUnreadable = Callable[[SourceNode, SourceRecord, DeserializationError], None]


def source_receiver(
    node: SourceNode, children: Sequence[Receiver], context: TaskRecordContext, unreadable: OnUnreadable
) -> SourceReceiver:
    """Return what makes a Record of a topic's record and hands it to the source's children."""
    deserializers = _PerTopic(
        lambda topic: (_deserializer(node.key_serde, topic), _deserializer(node.value_serde, topic))
    )
    is_global = node.is_global

    def receive(source: SourceRecord) -> None:
        context.topic, context.partition, context.offset, timestamp_ms, key_bytes, value_bytes, header_bytes = source
        if timestamp_ms < 0:
            raise InvalidTimestampError(
                topic=context.topic, partition=context.partition, offset=context.offset, timestamp_ms=timestamp_ms
            )
        context.source = source
        headers = Headers.from_bytes(header_bytes)
        key_object, value_object = deserializers[context.topic]
        try:
            key = None if key_bytes is None else key_object(key_bytes, headers)
            value = None if value_bytes is None else value_object(value_bytes, headers)
        except DeserializationError as cause:
            unreadable(node, source, cause)
            return
        context.timestamp_ms = timestamp_ms
        context.headers = headers
        if timestamp_ms > context.stream_time_ms and not is_global:
            context.stream_time_ms = timestamp_ms
        record = Record.adopt(key, value, timestamp_ms, headers)
        for child in children:
            child(record)

    return receive


def locate_failures(node: str, call: Callable[[T], None], context: TaskRecordContext) -> Callable[[T], None]:
    """Return user code that says where it failed."""

    def run(argument: T) -> None:
        try:
            call(argument)
        except (ProcessorError, LocalStateCorruptedError):
            # A ProcessorError comes from a node below and names it. Damage to the local state is no fault of user code.
            raise
        except Exception as cause:
            raise processor_error(node, context, cause) from cause

    return run


def sink_receiver(node: SinkNode, send: Callable[[SinkRecord], None], context: TaskRecordContext) -> Receiver:
    """Return what turns a Record into bytes and sends it to the sink's topic."""
    serializers = _PerTopic(lambda topic: (_serializer(node.key_serde, topic), _serializer(node.value_serde, topic)))
    adds_headers = any(serde is not None and serde.with_headers for serde in (node.key_serde, node.value_serde))
    topic_of = node.topic

    def receive(record: Record[Any, Any]) -> None:
        key, value = record.key, record.value
        headers = record._headers.copy() if adds_headers else record._headers
        topic = topic_of if isinstance(topic_of, str) else _require_topic(node, topic_of(record, context.metadata))
        key_bytes, value_bytes = serializers[topic]
        try:
            send(
                (
                    topic,
                    record.timestamp_ms,
                    None if key is None else key_bytes(key, headers),
                    None if value is None else value_bytes(value, headers),
                    headers.to_bytes(),
                )
            )
        except SerializationError as cause:
            raise SerializationError(f"sink {node.name!r} can't write {record!r}: {cause}") from cause

    return receive


def _require_topic(sink: SinkNode, topic: Any) -> str:
    if not isinstance(topic, str) or not topic:
        raise TypeError(f"sink {sink.name!r}: the function that chooses a topic returned {topic!r}")
    return topic


class _PerTopic(dict[str, _Functions]):
    """The functions for keys and values of each topic, made when it is first met: a node may have many topics."""

    def __init__(self, make: Callable[[str], _Functions]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, topic: str) -> _Functions:
        self[topic] = functions = self._make(topic)
        return functions


def _deserializer(serde: Serde[Any], topic: str) -> _WithHeaders:
    return serde.on_topic(topic).deserialize


def _serializer(serde: Serde[Any] | None, topic: str) -> _WithHeaders:
    return (_BY_TYPE if serde is None else serde).on_topic(topic).serialize


def serialize_by_type(value: Any) -> bytes:
    """Return bytes as they are, str as UTF-8, int as int64, float as double (both big-endian), anything else as JSON.

    Raises SerializationError for what none of them can hold, and for an int of more than 64 bits.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if type(value) is int:
        if value not in _INT64_RANGE:
            raise SerializationError(f"{value} has more than 64 bits: give the sink a serde")
        return value.to_bytes(8, "big", signed=True)
    if isinstance(value, float):
        return struct.pack(">d", value)
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as cause:
        raise SerializationError(
            f"{type(value).__name__} has no default form ({cause}): give the sink a serde"
        ) from cause


_BY_TYPE: Serde[Any] = Serde("by type", serialize_by_type, Serdes.bytes().deserialize)
