"""The topology that `make soak` runs under faults, with a store of every kind. Needs no Spark."""

from __future__ import annotations

from typing import Any

from statestore import (
    AggregationWithHeaders,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stores,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from tests.support.soak.records import FOREVER_MS, GAP_MS, TTL_MS, VERSIONS_SEGMENT_MS, WINDOW_MS

KEY, INT = Serdes.string(), Serdes.int64()
STORES = ("totals", "recent", "windows", "sessions", "versions", "counts")


class Everything(Processor):
    """Keeps readings in every kind of store, and forwards total and count."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        for store in STORES:
            setattr(self, store, context.state_store(store))

    def process(self, record: Record[str, Any]) -> None:
        stores: Any = self
        key, time_ms, headers = record.key, record.timestamp_ms, record.headers
        if record.value is None:
            stores.totals.delete(key)
            stores.versions.put(key, None, time_ms, headers)
            self.context.forward(record)
            return
        amount = record.value["amount"]
        stores.versions.put(key, amount, time_ms, headers)
        seen, total = stores.recent.get(key), stores.totals.get(key)
        count = (seen.value if seen else 0) + 1
        stores.recent.put(key, ValueTimestampHeaders(count, time_ms, headers))
        total = (total.value if total else 0) + amount
        stores.totals.put(key, ValueTimestampHeaders(total, time_ms, headers))

        start_ms = time_ms - time_ms % WINDOW_MS
        window = stores.windows.fetch(key, start_ms)
        in_window = (window.value if window else 0) + 1
        stores.windows.put(key, ValueTimestampHeaders(in_window, time_ms, headers), start_ms)

        self._add_to_session(record, amount)
        counted = stores.counts.get(key)
        stores.counts.put(key, ValueAndTimestamp((counted.value if counted else 0) + 1, time_ms))
        self.context.forward(record.with_value(f"{total}/{count}"))

    def _add_to_session(self, record: Record[str, Any], total: int) -> None:
        sessions: Any = self.sessions  # type: ignore[attr-defined]
        first_ms = last_ms = record.timestamp_ms
        with sessions.find_sessions(record.key, first_ms - GAP_MS, last_ms + GAP_MS) as overlapping:
            merged = list(overlapping)
        for session, held in merged:
            first_ms, last_ms = min(first_ms, session.start_ms), max(last_ms, session.end_ms)
            total += held.aggregation
            sessions.remove(session)
        sessions.put(Windowed(record.key, first_ms, last_ms), AggregationWithHeaders(total, record.headers))


def topology() -> Topology:
    made = Topology()
    made.add_source("readings", key_serde=KEY, value_serde=Serdes.json())
    made.add_processor("everything", Everything, ["readings"])
    key_value = Stores.timestamped_key_value_store_with_headers_builder
    persistent = Stores.persistent_timestamped_key_value_store_with_headers
    for builder in (
        key_value(persistent("totals"), KEY, INT).with_caching_enabled(),
        key_value(persistent("recent"), KEY, INT).with_ttl(TTL_MS, clock="event"),
        Stores.timestamped_window_store_with_headers_builder(
            Stores.persistent_timestamped_window_store_with_headers("windows", FOREVER_MS, WINDOW_MS), KEY, INT
        ),
        Stores.session_store_with_headers_builder(
            Stores.persistent_session_store_with_headers("sessions", FOREVER_MS), KEY, INT
        ),
        Stores.versioned_key_value_store_with_headers_builder(
            Stores.persistent_versioned_key_value_store_with_headers("versions", FOREVER_MS, VERSIONS_SEGMENT_MS),
            KEY,
            INT,
        ),
        Stores.timestamped_key_value_store_builder(Stores.in_memory_key_value_store("counts"), KEY, INT),
    ):
        made.add_state_store(builder, "everything")
    made.add_sink("out", "out", ["everything"], key_serde=KEY, value_serde=Serdes.string())
    return made
