"""What the twins of the topologies of tests/java/RunTopologies.java are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from statestore import Processor, ProcessorContext, Record, Serde, Serdes, StoreBuilder, Stores, Topology

STRING, INT64 = Serdes.string(), Serdes.int64()
RETENTION_MS, WINDOW_MS = 60_000, 10_000

Process: TypeAlias = Callable[[ProcessorContext, "Record[Any, Any]"], object]
Init: TypeAlias = Callable[[ProcessorContext], object]


def each(process: Process, init: Init | None = None) -> Callable[[], Processor]:
    """Return a supplier of processors that do this with each record."""

    class Each(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context
            if init is not None:
                init(context)

        def process(self, record: Record[Any, Any]) -> None:
            process(self.context, record)

    return Each


def forward_all(context: ProcessorContext, record: Record[Any, Any]) -> None:
    context.forward(record)


def passing() -> Callable[[], Processor]:
    return each(forward_all)


def put(context: ProcessorContext, store: str, key: Any, value: Any) -> None:
    context.state_store(store).put(key, value)


def text(value: object) -> str:
    """What Java's concatenation makes of it."""
    return "null" if value is None else str(value)


def describe(context: ProcessorContext, *, stream_time: bool = True) -> str:
    found = context.record_metadata
    record = "none" if found is None else f"{found.topic}-{found.partition}@{found.offset}"
    time = f" stream {context.current_stream_time_ms}" if stream_time else ""
    return f"{record}{time} wall {context.current_system_time_ms}"


def source(topology: Topology, name: str, *topics: str) -> Topology:
    return topology.add_source(name, topics, key_serde=STRING, value_serde=STRING)


def sink(topology: Topology, name: str, topic: Any, *parents: str) -> Topology:
    return topology.add_sink(name, topic, parents, key_serde=STRING, value_serde=STRING)


@dataclass(frozen=True)
class Kit:
    """Builders of stores, on RocksDB or in memory."""

    persistent: bool = False

    def topology(self, *topics: str) -> Topology:
        return source(Topology(), "source", *topics)

    def plain(self, name: str, values: Serde[Any] = STRING) -> StoreBuilder[Any]:
        made = Stores.persistent_key_value_store if self.persistent else Stores.in_memory_key_value_store
        return Stores.key_value_store_builder(made(name), STRING, values)

    def timestamped(self, name: str, values: Serde[Any] = STRING) -> StoreBuilder[Any]:
        made = Stores.persistent_timestamped_key_value_store if self.persistent else Stores.in_memory_key_value_store
        return Stores.timestamped_key_value_store_builder(made(name), STRING, values)

    def with_headers(self, name: str, values: Serde[Any] = STRING, keys: Serde[Any] = STRING) -> StoreBuilder[Any]:
        on_disk = Stores.persistent_timestamped_key_value_store_with_headers
        made = on_disk if self.persistent else Stores.in_memory_key_value_store
        return Stores.timestamped_key_value_store_with_headers_builder(made(name), keys, values)

    def window(self, name: str) -> StoreBuilder[Any]:
        made = Stores.persistent_window_store if self.persistent else Stores.in_memory_window_store
        return Stores.window_store_builder(made(name, RETENTION_MS, WINDOW_MS), STRING, STRING)

    def timestamped_window(self, name: str) -> StoreBuilder[Any]:
        made = Stores.persistent_timestamped_window_store if self.persistent else Stores.in_memory_window_store
        return Stores.timestamped_window_store_builder(made(name, RETENTION_MS, WINDOW_MS), STRING, STRING)

    def window_with_headers(self, name: str, keys: Serde[Any] = STRING) -> StoreBuilder[Any]:
        on_disk = Stores.persistent_timestamped_window_store_with_headers
        made = on_disk if self.persistent else Stores.in_memory_window_store
        return Stores.timestamped_window_store_with_headers_builder(made(name, RETENTION_MS, WINDOW_MS), keys, STRING)

    def session(self, name: str) -> StoreBuilder[Any]:
        made = Stores.persistent_session_store if self.persistent else Stores.in_memory_session_store
        return Stores.session_store_builder(made(name, RETENTION_MS), STRING, STRING)

    def session_with_headers(self, name: str, keys: Serde[Any] = STRING) -> StoreBuilder[Any]:
        made = Stores.persistent_session_store_with_headers if self.persistent else Stores.in_memory_session_store
        return Stores.session_store_with_headers_builder(made(name, RETENTION_MS), keys, STRING)

    def versioned(self, name: str) -> StoreBuilder[Any]:
        # Kafka Streams has none in memory.
        supplier = Stores.persistent_versioned_key_value_store(name, RETENTION_MS, 20_000)
        return Stores.versioned_key_value_store_builder(supplier, STRING, STRING)


def with_global_store(topology: Topology, store: str, source_name: str, topic: str, processor: str) -> Topology:
    """Add a global store that nobody fills."""
    supplier = each(lambda context, record: None)
    return topology.add_global_store(
        Kit().plain(store), source_name, topic, processor, supplier, key_serde=STRING, value_serde=STRING
    )
