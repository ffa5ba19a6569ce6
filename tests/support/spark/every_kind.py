"""A topology over orders with a store of every kind, and a query's stores as rows that can be compared."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from orders import START_MS
from statestore import Processor, ProcessorContext, Record, Serdes, Topology, ValueTimestampHeaders
from tests.support.headed_stores import HeadedStores
from tests.support.sessions import add_to_session

HOUR_MS = 3_600_000
WINDOW_MS = 10_000
GAP_MS = 8_000
FOREVER_MS = 2 * START_MS
STORES = ("sessions", "totals", "versions", "windows")
KEY, INT = Serdes.string(), Serdes.int64()


class EveryKind(Processor):
    """Totals orders by customer, by window and by session, which are deleted as they grow, and keeps every amount."""

    def init(self, context: ProcessorContext) -> None:
        self.totals, self.windows = context.state_store("totals"), context.state_store("windows")
        self.sessions, self.versions = context.state_store("sessions"), context.state_store("versions")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        key, time_ms, amount, headers = record.key, record.timestamp_ms, record.value["amount"], record.headers
        seen = self.totals.get(key)
        self.totals.put(key, ValueTimestampHeaders((seen.value if seen else 0) + amount, time_ms, headers))
        start_ms = time_ms - time_ms % WINDOW_MS
        counted = self.windows.fetch(key, start_ms)
        total = (counted.value if counted else 0) + amount
        self.windows.put(key, ValueTimestampHeaders(total, time_ms, headers), start_ms)
        add_to_session(self.sessions, record, amount, GAP_MS)
        # Some versions end without another.
        self.versions.put(key, amount if amount % 5 else None, time_ms, headers)


def builders() -> list[Any]:
    """Return the builders of the stores in STORES."""
    stores = HeadedStores(KEY, INT)
    return [
        stores.key_value("totals"),
        stores.windows("windows", FOREVER_MS, WINDOW_MS, HOUR_MS),
        stores.sessions("sessions", FOREVER_MS),
        stores.versions("versions", FOREVER_MS, HOUR_MS),
    ]


def every_kind_topology(processor: type[EveryKind] = EveryKind, *more: Any) -> Topology:
    """Return orders -> every kind, with the stores in STORES, and those of more builders."""
    topology = Topology()
    topology.add_source("orders", key_serde=KEY, value_serde=Serdes.json())
    topology.add_processor("every-kind", processor, ["orders"])
    for builder in (*builders(), *more):
        topology.add_state_store(builder, "every-kind")
    return topology


def entries(rows: DataFrame) -> list[Any]:
    """Return the entries that rows of a store are, in order, without where they stand."""
    columns = ["key", "value", "timestamp_ms", "headers", "start_ms", "end_ms"]
    return sorted((tuple(row) for row in rows.select(*columns).collect()), key=repr)
