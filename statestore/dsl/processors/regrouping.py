"""Tables grouped by another key, and their aggregates: a value that goes away is subtracted again.

Source: Kafka's KTableRepartitionMap, KTableAggregate and KTableReduce.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from statestore.dsl.change import Change
from statestore.dsl.functions import pair
from statestore.dsl.processors.aggregating import Aggregating
from statestore.dsl.processors.planned import Planned
from statestore.format.serde import Serde
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders


@dataclass(frozen=True)
class RegroupingPlan:
    """How a table is grouped by another key. Travels to the executors."""

    selector: Callable[[Any, Any], tuple[Any, Any] | None]
    key_serde: Serde[Any] | None
    """The serde of the new keys; None if nothing aggregates them."""
    leaves_out_earlier: bool
    """Whether changes of versions that are not the latest are dropped: in a versioned table."""


class RegroupingTable(Planned[RegroupingPlan]):
    """Sends each change to its old key, to be subtracted, and to its new key, to be added."""

    def process(self, record: Record[Any, Any]) -> None:
        """Forward one change if the key stays, else one to each key; what the selector has as None is left out."""
        key, change = record.key, record.value
        if self._plan.leaves_out_earlier and not change.is_latest:
            return
        new, old = self._grouped(key, change.new), self._grouped(key, change.old)
        if new is not None and old is not None and self._is_one_key(new[0], old[0]):
            self._forward(record, new[0], Change(new[1], old[1]))
            return
        if old is not None:
            self._forward(record, old[0], Change(None, old[1]))
        if new is not None:
            self._forward(record, new[0], Change(new[1]))

    def _is_one_key(self, new: Any, old: Any) -> bool:
        """Return whether two keys are one: 1, 1.0 and True are equal, but not in JSON."""
        if new != old or self._plan.key_serde is None:
            return bool(new == old)
        write = self._plan.key_serde.on_topic(None).serialize
        return write(new, Headers()) == write(old, Headers())

    def _grouped(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        if value is None:
            return None
        made = self._plan.selector(key, value)
        if made is None:
            return None
        new_key, new_value = pair("group_by() of a table", made)
        return None if new_key is None or new_value is None else (new_key, new_value)

    def _forward(self, record: Record[Any, Any], key: Any, change: Change) -> None:
        self._context.forward(record.with_key(key).with_value(change))


class AggregatingTable(Aggregating):
    """Keeps one aggregate a key of a grouped table, with the latest timestamp of its changes."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._knows_old = self._plan.changes.send_old or self._plan.changes.is_cached

    def process(self, record: Record[Any, Any]) -> None:
        """Subtract the old value from the key's aggregate, and add the new one."""
        key, change, aggregation = record.key, record.value, self._plan.aggregation
        held = self._store.get(key)
        made, timestamp_ms, header_bytes = None, record.timestamp_ms, None
        if held is not None:
            made, header_bytes = held.value, held.header_bytes
            timestamp_ms = max(timestamp_ms, held.timestamp_ms)
        # Functions may change their arguments.
        old = deepcopy(made) if self._knows_old else None
        if change.old is not None and made is not None:
            assert aggregation.subtractor is not None  # all aggregates of a grouped table have one
            made = aggregation.subtractor(key, change.old, made)
        if change.new is not None:
            made = aggregation.aggregator(key, change.new, aggregation.initializer() if made is None else made)
        if made is None and self._plan.changes.is_cached:
            timestamp_ms = record.timestamp_ms  # as in `Update.of`
        updated = ValueTimestampHeaders(
            made, timestamp_ms, self._update.merged(header_bytes, record.headers.to_bytes())
        )
        is_latest = self._store.hold(key, updated)
        if is_latest is not None:
            self._changes.send(key, made, old, timestamp_ms, updated.header_bytes, is_latest=is_latest)
