"""A topology that keeps the last record of each key, and a search of what it left on disks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders

BYTES = Serdes.bytes()


class Keep(Processor):
    """Keeps the last record of each key, and forwards it."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.kept = context.state_store("kept")

    def process(self, record: Record[Any, Any]) -> None:
        self.kept.put(record.key, ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers))
        self.context.forward(record)


def keeping(kept: Any = BYTES) -> Topology:
    """A store of the last record of each key, whose values the serde may encrypt."""
    topology = Topology()
    topology.add_source("source", "orders", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("keep", Keep, parents=["source"])
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("kept")
    topology.add_state_store(Stores.timestamped_key_value_store_with_headers_builder(supplier, BYTES, kept), "keep")
    topology.add_sink("sink", "kept-orders", ["keep"], key_serde=BYTES, value_serde=BYTES)
    return topology


def files_with(text: bytes, home: Path) -> list[str]:
    return [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and text in path.read_bytes()]
