"""Aggregates of keys, without windows. Source: Kafka's KStreamAggregate and KStreamReduce."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from statestore.dsl.aggregations import Aggregation
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.tables import table_store
from statestore.format.serde import Serde
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_HEADERS, DROPPED_RECORDS
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders


@dataclass(frozen=True)
class AggregatePlan:
    """How records are aggregated. Travels to the executors."""

    store: str
    key_serde: Serde[Any]
    aggregation: Aggregation
    headers: HeaderPolicy
    changes: ChangesPlan
    node: str | None = None
    """The node's name, if several nodes aggregate into the same store."""


class Aggregating(Planned[AggregatePlan]):
    """Keeps one aggregate a key, with the latest timestamp of its records."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._store = table_store(context.state_store(self._plan.store))
        self._changes = self._plan.changes.open(context, self._plan.key_serde)
        self._update = Update(self._plan, context)

    def process(self, record: Record[Any, Any]) -> None:
        """Add a record to its key's aggregate."""
        key = record.key
        if key is None or record.value is None:
            self._context.count(DROPPED_RECORDS)
            return
        held = self._store.get(key)
        old, updated = self._update.of(held, record)
        is_latest = self._store.hold(key, updated)
        if is_latest is not None:
            self._changes.send(key, updated.value, old, updated.timestamp_ms, updated.header_bytes, is_latest=is_latest)

    def finish_batch(self) -> None:
        """Send on what was held back."""
        self._changes.finish()


class Update:
    """Computes what to hold of a key or window after a record."""

    def __init__(self, plan: AggregatePlan, context: ProcessorContext) -> None:
        self._initializer, self._aggregator = plan.aggregation.initializer, plan.aggregation.aggregator
        self._begun = plan.aggregation.begun
        self._headers, self._changes = plan.headers, plan.changes
        self._context = context

    def of(
        self, held: ValueTimestampHeaders[Any] | None, record: Record[Any, Any]
    ) -> tuple[Any, ValueTimestampHeaders[Any]]:
        """Return the old value, and what to hold from now on, whose value of None deletes it.

        The old value of the first record is that of the initializer, as in Kafka, unless changes are cached.
        """
        if held is None:
            there, timestamp_ms, header_bytes = self._initializer(), record.timestamp_ms, None
            knows_old = self._changes.send_old and not self._changes.is_cached
        else:
            there, timestamp_ms = held.value, max(record.timestamp_ms, held.timestamp_ms)
            header_bytes = held.header_bytes
            knows_old = self._changes.send_old or self._changes.is_cached
        old = None
        if knows_old:  # the aggregator may change its argument; unless it is sent, only whether there was one counts
            old = deepcopy(there) if self._changes.send_old else there
            old = self._begun(old) if held is None else old
        made = self._aggregator(record.key, record.value, there)
        if made is None and self._changes.is_cached:
            # In Kafka's cache, a deletion has no timestamp of its own. Source: Kafka's TimestampedCacheFlushListener.
            timestamp_ms = record.timestamp_ms
        return old, ValueTimestampHeaders(made, timestamp_ms, self.merged(header_bytes, record.headers.to_bytes()))

    def merged(self, old: bytes | None, new: bytes) -> bytes:
        """Return the headers that the policy makes of both."""
        merged, dropped = self._headers.merge(old, new)
        if dropped:
            self._context.count(DROPPED_HEADERS, dropped)
        return merged
