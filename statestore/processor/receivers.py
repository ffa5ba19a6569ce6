"""How each kind of node handles a record: the functions that a task chains.

Nothing here parses headers. They are copied, which parses nothing, only for a serde that may add to them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from statestore.errors import DeserializationError, ProcessorError, SerializationError
from statestore.errors.readable import shape_of
from statestore.errors.run import InvalidTimestampError
from statestore.format.serde import Serde, Serdes
from statestore.headers.record_headers import Headers, blank_headers
from statestore.headers.topic_columns import Send, SourceFields
from statestore.processor.context import NO_FAULT_OF_USER_CODE, Receiver, TaskRecordContext, processor_error
from statestore.processor.earlier_times import EarlierTimes
from statestore.processor.nodes import SinkNode, SourceNode
from statestore.processor.record import Record, blank_record

T = TypeVar("T")

_INT64_RANGE = range(-(2**63), 2**63)

_WithHeaders = Callable[[Any, Headers], Any]
_Functions = tuple[_WithHeaders, _WithHeaders]
SourceReceiver = Callable[[SourceFields], None]
OnUnreadable = Callable[[SourceNode, SourceFields, DeserializationError], None]
OnUnwritable = Callable[[SinkNode, "Record[Any, Any]", SerializationError], None]
BeforeSending = Callable[[str, "Record[Any, Any]"], "list[Record[Any, Any]]"]


def source_receiver(
    node: SourceNode,
    children: Sequence[Receiver],
    context: TaskRecordContext,
    unreadable: OnUnreadable,
    earlier: EarlierTimes | None = None,
) -> SourceReceiver:
    """Return a function that makes a Record of a topic's record and passes it to the source's children."""
    key_serde, value_serde = node.key_serde, node.value_serde
    deserializers = _PerTopic(
        lambda topic: (key_serde.on_topic(topic).deserialize, value_serde.on_topic(topic).deserialize)
    )
    takes_time_on = node.takes_time_on
    # Decided once, to save calls per record: most serdes ignore headers, and some change nothing.
    takes_headers = key_serde.with_headers is not None or value_serde.with_headers is not None
    read_key = None if key_serde.is_identity else key_serde.deserialize
    read_value = None if value_serde.is_identity else value_serde.deserialize
    if earlier is not None and takes_time_on:
        children = [_at_earlier_times(children, context, earlier)]

    def receive(source: SourceFields) -> None:
        context.topic, context.partition, context.offset, timestamp_ms, key, value, header_bytes = source
        if timestamp_ms < 0:
            raise InvalidTimestampError(
                topic=context.topic, partition=context.partition, offset=context.offset, timestamp_ms=timestamp_ms
            )
        context.source = source
        # Headers.from_bytes and Record.adopt in place: each record comes through here.
        headers = blank_headers()
        headers._bytes = header_bytes
        headers._headers = None
        headers._frozen = False
        try:
            if takes_headers:
                key_of, value_of = deserializers[context.topic]
                key = None if key is None else key_of(key, headers)
                value = None if value is None else value_of(value, headers)
            else:
                if key is not None and read_key is not None:
                    key = read_key(key)
                if value is not None and read_value is not None:
                    value = read_value(value)
        except DeserializationError as cause:
            unreadable(node, source, cause)
            return
        context.timestamp_ms = timestamp_ms
        context.headers = headers
        if timestamp_ms > context.stream_time_ms and takes_time_on:
            context.stream_time_ms = timestamp_ms
        record = blank_record()
        record.key = key
        record.value = value
        record.timestamp_ms = timestamp_ms
        record._headers = headers
        for child in children:
            child(record)

    return receive


def _at_earlier_times(children: Sequence[Receiver], context: TaskRecordContext, earlier: EarlierTimes) -> Receiver:
    """Return a receiver that calls children at a stream time not before that of the key's earlier shard."""

    def receive(record: Record[Any, Any]) -> None:
        assert context.source is not None  # it is the record that is processed
        stream_time_ms = context.stream_time_ms
        context.stream_time_ms = max(stream_time_ms, earlier.of(context.source[4] or b"", context.partition))
        try:
            for child in children:
                child(record)
        finally:
            context.stream_time_ms = stream_time_ms

    return receive


def locate_failures(node: str, call: Callable[[T], None], context: TaskRecordContext) -> Callable[[T], None]:
    """Return user code whose errors say where it failed."""

    def run(argument: T) -> None:
        try:
            call(argument)
        except (ProcessorError, *NO_FAULT_OF_USER_CODE):
            # A ProcessorError comes from a node below and names it.
            raise
        except Exception as cause:
            raise processor_error(node, context, cause) from cause

    return run


def sink_receiver(
    node: SinkNode,
    send: Send,
    context: TaskRecordContext,
    unwritable: OnUnwritable,
    before: BeforeSending | None = None,
) -> Receiver:
    """Return a function that turns a Record into bytes and sends it to the sink's topic.

    `unwritable` is called with what the serdes can't write; it raises the error, or returns to leave that out.
    """
    key_serde, value_serde = node.key_serde or _BY_TYPE, node.value_serde or _BY_TYPE
    serializers = _PerTopic(lambda topic: (key_serde.on_topic(topic).serialize, value_serde.on_topic(topic).serialize))
    adds_headers = key_serde.with_headers is not None or value_serde.with_headers is not None
    topic_of, fixed_topic = node.topic, node.topic if isinstance(node.topic, str) else None
    # As in a source: most sinks write bytes as they are.
    write_key, write_value = key_serde.serialize, value_serde.serialize
    keeps_key, keeps_value = (serde is _BY_TYPE or serde.writes_bytes for serde in (key_serde, value_serde))

    def receive(record: Record[Any, Any]) -> None:
        key, value, headers = record.key, record.value, record._headers
        topic = _require_topic(node, topic_of, record, context) if fixed_topic is None else fixed_topic
        try:
            if adds_headers:
                headers = headers.copy()
                key_bytes, value_bytes = serializers[topic]
                key = None if key is None else key_bytes(key, headers)
                value = None if value is None else value_bytes(value, headers)
            else:
                if key is not None and not (keeps_key and key.__class__ is bytes):
                    key = write_key(key)
                if value is not None and not (keeps_value and value.__class__ is bytes):
                    value = write_value(value)
            header_bytes = headers._bytes
            send(topic, record.timestamp_ms, key, value, headers.to_bytes() if header_bytes is None else header_bytes)
        except SerializationError as cause:
            unwritable(node, record, cause)

    if before is None:
        return receive
    passed = before

    def receive_passed(record: Record[Any, Any]) -> None:
        # `receive` chooses the topic again: the hooks may have changed the record.
        topic = _require_topic(node, topic_of, record, context) if fixed_topic is None else fixed_topic
        for made in passed(topic, record):
            receive(made)

    return receive_passed


def _require_topic(sink: SinkNode, topic_of: Any, record: Record[Any, Any], context: TaskRecordContext) -> str:
    topic = topic_of(record, context.metadata)
    if not isinstance(topic, str) or not topic:
        raise TypeError(f"sink {sink.name!r}: the function that chooses a topic returned {shape_of(topic)}, not a name")
    return topic


class _PerTopic(dict[str, _Functions]):
    """The functions for keys and values of each topic, made when it is first met: a node may have many topics."""

    def __init__(self, make: Callable[[str], _Functions]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, topic: str) -> _Functions:
        self[topic] = functions = self._make(topic)
        return functions


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
            raise SerializationError(
                f"an int of {value.bit_length()} bits does not fit in int64: give the sink a serde"
            )
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
