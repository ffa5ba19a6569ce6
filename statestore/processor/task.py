"""Runs a topology over the records of one shard: the one code path under every driver."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeAlias

from statestore.errors import (
    DeserializationError,
    LocalStateCorruptedError,
    ProcessorError,
    SerializationError,
    UnknownTopicError,
)
from statestore.format.serde import Serde
from statestore.headers import Headers
from statestore.processor.context import ProcessorContext, Receiver, TaskRecordContext
from statestore.processor.processor import Processor
from statestore.processor.record import Record
from statestore.processor.topology import ProcessorNode, SinkNode, SourceNode, Topology
from statestore.stores.typed_store import TypedStore

_LOG = logging.getLogger(__name__)
_SKIPS_LOGGED = 10
_INT64_RANGE = range(-(2**63), 2**63)


class OnDeserializationError(Enum):
    """What to do with a record that the source's serdes can't read. Source: Kafka's DeserializationExceptionHandler."""

    FAIL = "fail"
    SKIP = "skip"


SourceRecord: TypeAlias = "tuple[str, int, int, int, bytes | None, bytes | None, bytes]"
"""A record as it comes from a topic: topic, partition, offset, timestamp_ms, key, value, header bytes (KIP-1271).

A plain tuple, as is SinkRecord: there is one of each for every record.
"""

SinkRecord: TypeAlias = "tuple[str, int, bytes | None, bytes | None, bytes]"
"""A record as it goes to a topic: topic, timestamp_ms, key, value, header bytes (KIP-1271)."""


class Task:
    """One instance of a topology, for one shard and one batch."""

    def __init__(
        self,
        topology: Topology,
        shard: int,
        stores: Mapping[str, TypedStore],
        context: TaskRecordContext,
        *,
        on_deserialization_error: OnDeserializationError = OnDeserializationError.FAIL,
    ) -> None:
        self.skipped_records = 0
        self.outputs: list[SinkRecord] = []
        """What the sinks were sent since the driver last took it."""
        self.shard = shard
        self._context = context
        self._skip = on_deserialization_error is OnDeserializationError.SKIP
        self._processors: list[Processor] = []
        self._stores = stores
        receivers: dict[str, Receiver] = {}
        for sink in topology.sinks.values():
            receivers[sink.name] = self._sink(sink)
        # Children before parents: a parent is given its children's receivers.
        for processor in reversed(topology.processors.values()):
            receivers[processor.name] = self._processor(processor, _children(topology, processor.name, receivers))
        self._sources: dict[str | None, Callable[[SourceRecord], None]] = {}
        for source in topology.sources.values():
            receive = self._source(source, tuple(_children(topology, source.name, receivers).values()))
            for topic in source.topics or (None,):
                self._sources[topic] = receive

    def process(self, records: Iterable[SourceRecord]) -> int:
        """Run the records through the topology, in their order, and return how many they were.

        Raises ProcessorError around what user code raises, DeserializationError, SerializationError, and
        UnknownTopicError. After an error the task must not be used again.
        """
        sources, catch_all = self._sources, self._sources.get(None)
        processed = 0
        for record in records:
            processed += 1
            receive = sources.get(record[0]) or catch_all
            if receive is None:
                raise UnknownTopicError(topic=record[0], sources=sorted(topic for topic in sources if topic))
            receive(record)
        return processed

    def close(self) -> None:
        """Close the processors that were made."""
        processors, self._processors = self._processors, []
        for processor in processors:
            processor.close()

    def _source(self, node: SourceNode, children: tuple[Receiver, ...]) -> Callable[[SourceRecord], None]:
        context = self._context
        key_object, value_object = node.key_serde.deserialize, node.value_serde.deserialize

        def receive(source: SourceRecord) -> None:
            context.topic, context.partition, context.offset, timestamp_ms, key_bytes, value_bytes, header_bytes = (
                source
            )
            try:
                key = None if key_bytes is None else key_object(key_bytes)
                value = None if value_bytes is None else value_object(value_bytes)
            except DeserializationError as cause:
                self._unreadable(node, source, cause)
                return
            headers = Headers.from_bytes(header_bytes)
            context.timestamp_ms = timestamp_ms
            context.headers = headers
            if timestamp_ms > context.stream_time_ms:
                context.stream_time_ms = timestamp_ms
            record = Record(key, value, timestamp_ms, headers)
            for child in children:
                child(record)

        return receive

    def _unreadable(self, node: SourceNode, source: SourceRecord, cause: DeserializationError) -> None:
        topic, partition, offset = source[:3]
        where = f"source {node.name!r} can't read record {topic}-{partition} at offset {offset}"
        if not self._skip:
            raise DeserializationError(
                f"{where}: {cause}. Nothing was committed. Mend the record or the serde, or start with "
                'on_deserialization_error="skip" to leave such records out'
            ) from cause
        self.skipped_records += 1
        if self.skipped_records <= _SKIPS_LOGGED:
            _LOG.warning("skipped: %s: %s", where, cause)

    def _processor(self, node: ProcessorNode, children: Mapping[str, Receiver]) -> Receiver:
        stores = {name: self._stores[name] for name in node.stores}
        processor_context = ProcessorContext(node.name, self.shard, self._context, stores)
        processor_context.connect(children)
        processor = node.supplier()
        if not isinstance(processor, Processor):
            raise TypeError(f"the supplier of processor {node.name!r} made {processor!r}, which is not a Processor")
        self._processors.append(processor)
        processor.init(processor_context)
        process, context = processor.process, self._context

        def receive(record: Record[Any, Any]) -> None:
            try:
                process(record)
            except (ProcessorError, LocalStateCorruptedError):
                # The first comes from a node below and says where; the second is no fault of user code.
                raise
            except Exception as cause:
                raise ProcessorError(
                    node=node.name,
                    topic=context.topic,
                    partition=context.partition,
                    offset=context.offset,
                    cause=cause,
                ) from cause

        return receive

    def _sink(self, node: SinkNode) -> Receiver:
        topic, send = node.topic, self.outputs.append
        key_bytes, value_bytes = _serializer(node.key_serde), _serializer(node.value_serde)

        def receive(record: Record[Any, Any]) -> None:
            key, value = record.key, record.value
            try:
                send(
                    (
                        topic,
                        record.timestamp_ms,
                        None if key is None else key_bytes(key),
                        None if value is None else value_bytes(value),
                        record.headers.to_bytes(),
                    )
                )
            except SerializationError as cause:
                raise SerializationError(f"sink {node.name!r} can't write {record!r}: {cause}") from cause

        return receive


def _children(topology: Topology, parent: str, receivers: Mapping[str, Receiver]) -> dict[str, Receiver]:
    return {name: receivers[name] for name in topology.children(parent)}


def _serializer(serde: Serde[Any] | None) -> Callable[[Any], bytes]:
    return serialize_by_type if serde is None else serde.serialize


def serialize_by_type(value: Any) -> bytes:
    """Return bytes as they are, str as UTF-8, int as int64, float as double (both big-endian), anything else as JSON.

    Raises SerializationError for what none of them can hold.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if type(value) is int and value in _INT64_RANGE:
        return value.to_bytes(8, "big", signed=True)
    if isinstance(value, float):
        return struct.pack(">d", value)
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as cause:
        raise SerializationError(
            f"{type(value).__name__} has no default form ({cause}): give the sink a serde"
        ) from cause
