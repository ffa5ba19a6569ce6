"""How others read what a table holds of a key. Source: Kafka's KTableValueGetter and KTableValueGetterSupplier.

A table without a store is computed from the tables above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from statestore.processor.context import ProcessorContext
from statestore.stores.holders import ValueTimestampHeaders

Held: TypeAlias = "ValueTimestampHeaders[Any] | None"
Getter: TypeAlias = "Callable[[Any], Held]"
GetterAsOf: TypeAlias = "Callable[[Any, int], Held]"


@dataclass(frozen=True)
class TableView(ABC):
    """Where a table's entries are. Travels to the executors."""

    stores: tuple[str, ...]
    """The names of the stores that are read."""

    @abstractmethod
    def open(self, context: ProcessorContext) -> Getter:
        """Return what reads one entry, for one task."""

    def open_as_of(self, context: ProcessorContext) -> GetterAsOf:
        """Return what reads an entry as of a time in ms; without versions, as it is now."""
        get = self.open(context)
        return lambda key, as_of_ms: get(key)


@dataclass(frozen=True)
class StoreView(TableView):
    """The entries of a key-value store with timestamps and headers."""

    def open(self, context: ProcessorContext) -> Getter:
        """Return the store's `get`."""
        get: Getter = context.state_store(self.stores[0]).get
        return get


@dataclass(frozen=True)
class VersionedView(StoreView):
    """The entries of a versioned store with headers."""

    def open_as_of(self, context: ProcessorContext) -> GetterAsOf:
        """Return the store's `get` as of a time."""
        get: GetterAsOf = context.state_store(self.stores[0]).get
        return get


@dataclass(frozen=True)
class WindowView(TableView):
    """The entries of a window store; keys are Windowed."""

    def open(self, context: ProcessorContext) -> Getter:
        """Return the store's `fetch` of one window."""
        fetch: Callable[[Any, int], Held] = context.state_store(self.stores[0]).fetch
        return lambda window: fetch(window.key, window.start_ms)


@dataclass(frozen=True)
class SessionView(TableView):
    """The entries of a session store; keys are Windowed."""

    def open(self, context: ProcessorContext) -> Getter:
        """Return what reads one session, with its end as its timestamp."""
        fetch: Callable[[Any, int, int], Any] = context.state_store(self.stores[0]).fetch_session

        def get(session: Any) -> Held:
            held = fetch(session.key, session.start_ms, session.end_ms)
            return None if held is None else ValueTimestampHeaders(held.aggregation, session.end_ms, held.header_bytes)

        return get


@dataclass(frozen=True)
class ComputedView(TableView):
    """What a function of key and value returns for another table's values; None means that the key is not there."""

    of: TableView
    function: Callable[[Any, Any], Any]

    def open(self, context: ProcessorContext) -> Getter:
        """Return what reads the other table and computes."""
        get = self.of.open(context)
        return lambda key: self._computed(key, get(key))

    def open_as_of(self, context: ProcessorContext) -> GetterAsOf:
        """Return what reads the other table as it was at a time and computes."""
        get = self.of.open_as_of(context)
        return lambda key, as_of_ms: self._computed(key, get(key, as_of_ms))

    def _computed(self, key: Any, held: Held) -> Held:
        value = None if held is None else self.function(key, held.value)
        if held is None or value is None:
            return None
        return ValueTimestampHeaders(value, held.timestamp_ms, held.header_bytes)
