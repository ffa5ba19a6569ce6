"""What a processor sees of the task that runs it. Source: Kafka Streams' api.ProcessorContext."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from statestore.errors import TopologyError
from statestore.headers import Headers
from statestore.processor.record import Record, RecordMetadata

Receiver = Callable[[Record[Any, Any]], None]


class TaskRecordContext:
    """The record that a task is processing: where it came from, and its timestamp and headers at this node."""

    __slots__ = ("headers", "offset", "partition", "stream_time_ms", "timestamp_ms", "topic")

    def __init__(self, stream_time_ms: int = -1) -> None:
        self.topic = ""
        self.partition = -1
        self.offset = -1
        self.timestamp_ms = -1
        self.headers = Headers()
        self.stream_time_ms = stream_time_ms

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""
        return self.headers.to_bytes()


class ProcessorContext:
    """Forwards records to the node's children and hands out its state stores."""

    def __init__(
        self,
        node: str,
        shard: int,
        record_context: TaskRecordContext,
        stores: Mapping[str, Any],
    ) -> None:
        self.node = node
        self.shard = shard
        self._record_context = record_context
        self._stores = stores
        self._children: Mapping[str, Receiver] = {}
        self._receivers: Sequence[Receiver] = ()

    def connect(self, children: Mapping[str, Receiver]) -> None:
        """Set who receives what this node forwards. The task's to call."""
        self._children = children
        self._receivers = tuple(children.values())

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Send `record` to all children in the order they were added, or to the one named `child`.

        Returns when they have processed it. Raises TopologyError if there is no such child.
        """
        context = self._record_context
        timestamp_ms, headers = context.timestamp_ms, context.headers
        context.timestamp_ms, context.headers = record.timestamp_ms, record.headers
        try:
            receivers = self._receivers if child is None else (self._child(child),)
            for receive in receivers:
                receive(record)
        finally:
            context.timestamp_ms, context.headers = timestamp_ms, headers

    def state_store(self, name: str) -> Any:
        """Return the state store `name`. Raises TopologyError if it is not attached to this processor."""
        try:
            return self._stores[name]
        except KeyError:
            raise TopologyError(
                f"processor {self.node!r} asked for the state store {name!r}, which is not attached to it (attached: "
                f"{sorted(self._stores)}). Name the processor in add_state_store(builder, {self.node!r})"
            ) from None

    @property
    def record_metadata(self) -> RecordMetadata:
        """Topic, partition and offset of the input record that is being processed."""
        context = self._record_context
        return RecordMetadata(context.topic, context.partition, context.offset)

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp that this shard has seen, in milliseconds since the epoch; -1 before the first."""
        return self._record_context.stream_time_ms

    def _child(self, name: str) -> Receiver:
        try:
            return self._children[name]
        except KeyError:
            raise TopologyError(
                f"node {self.node!r} forwards to {name!r}, which is not a child of it (children: "
                f"{sorted(self._children)})"
            ) from None
