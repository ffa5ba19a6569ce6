"""The nodes of a topology. Source: Kafka Streams' InternalTopologyBuilder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from statestore.format.serde import Serde
from statestore.interception.interceptor import Interceptor
from statestore.processor.processor import ProcessorSupplier
from statestore.processor.record import Record, RecordMetadata
from statestore.recovery.metadata.state_metadata import ENTRY_KEYS

TopicNameExtractor: TypeAlias = "Callable[[Record[Any, Any], RecordMetadata | None], str]"
"""Chooses the topic of a record that a sink writes. Source: Kafka's TopicNameExtractor."""


@dataclass(frozen=True)
class SourceNode:
    """Reads topics; `topics` of None means every topic that no other source reads.

    A global source feeds a global store: every shard reads all of its records.
    """

    name: str
    topics: tuple[str, ...] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    is_global: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        recorded = {"type": "source", "name": self.name, "topics": None if self.topics is None else list(self.topics)}
        return {**recorded, "global": True} if self.is_global else recorded


@dataclass
class ProcessorNode:
    """Runs user code."""

    name: str
    supplier: ProcessorSupplier
    parents: tuple[str, ...]
    stores: list[str] = field(default_factory=list)
    entry_keys: dict[str, str] = field(default_factory=dict)
    """Of stores whose keys the library makes: what they are made of. Offline tools find the record's key by it."""
    undescribed: frozenset[str] = frozenset()
    """Those of its stores that Kafka's processor of the same name does not have: descriptions are Kafka's."""

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        recorded: dict[str, Any] = {
            "type": "processor",
            "name": self.name,
            "parents": list(self.parents),
            "stores": sorted(self.stores),
        }
        return {**recorded, ENTRY_KEYS: dict(sorted(self.entry_keys.items()))} if self.entry_keys else recorded


@dataclass(frozen=True)
class InterceptorNode:
    """Stands around a topology. Recorded only if it has stores: any other can come and go from start to start."""

    interceptor: Interceptor
    stores: tuple[str, ...]
    entry_keys: Mapping[str, str]
    """As a processor's."""

    @property
    def name(self) -> str:
        """Its name among the nodes."""
        return f"interceptor-{self.interceptor.name}"

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        recorded: dict[str, Any] = {"type": "interceptor", "name": self.name, "stores": sorted(self.stores)}
        return {**recorded, ENTRY_KEYS: dict(sorted(self.entry_keys.items()))} if self.entry_keys else recorded


@dataclass(frozen=True)
class SinkNode:
    """Writes to a topic, or to the one that a function chooses.

    Without serdes, it writes by the type of what arrives (see `serialize_by_type`).
    """

    name: str
    topic: str | TopicNameExtractor
    parents: tuple[str, ...]
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node; a topic of None is chosen by a function."""
        topic = self.topic if isinstance(self.topic, str) else None
        return {"type": "sink", "name": self.name, "topic": topic, "parents": list(self.parents)}
