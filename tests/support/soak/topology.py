"""The topology that `make soak` runs under faults, with a store of every kind. Needs no Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from statestore.format.key_groups import KeyGroups
from statestore.format.serde import Serdes
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.record import Record
from statestore.processor.topology import Topology
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import ValueAndTimestamp, ValueTimestampHeaders
from statestore.stores.stores import Stores
from tests.support.headed_stores import HeadedStores
from tests.support.sessions import add_to_session
from tests.support.soak.records import FOREVER_MS, GAP_MS, TTL_MS, VERSIONS_SEGMENT_MS, WINDOW_MS

KEY, INT = Serdes.string(), Serdes.int64()
STORES = ("totals", "recent", "windows", "sessions", "versions", "counts")
IN_COLUMNS = ("totals", "windows", "counts")
AMOUNT_AND_TOTAL = pa.struct([("amount", pa.int64()), ("total", pa.int64())])


class Everything(Processor):
    """Keeps readings in every kind of store, and forwards total and count."""

    stores = STORES

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        for store in self.stores:
            setattr(self, store, context.state_store(store))

    def process(self, record: Record[str, Any]) -> None:
        stores: Any = self
        key, time_ms, headers = record.key, record.timestamp_ms, record.headers
        if record.value is None:
            self._delete(record)
            self.context.forward(record)
            return
        amount = record.value["amount"]
        total = self._add_to_total(record, amount)
        stores.versions.put(key, amount, time_ms, headers)
        seen = stores.recent.get(key)
        count = (seen.value if seen else 0) + 1
        stores.recent.put(key, ValueTimestampHeaders(count, time_ms, headers))
        add_to_session(stores.sessions, record, amount, GAP_MS)
        self.context.forward(record.with_value(f"{total}/{count}"))

    def _delete(self, record: Record[str, Any]) -> None:
        stores: Any = self
        stores.totals.delete(record.key)
        stores.versions.put(record.key, None, record.timestamp_ms, record.headers)

    def _add_to_total(self, record: Record[str, Any], amount: int) -> int:
        stores: Any = self
        key, time_ms, headers = record.key, record.timestamp_ms, record.headers
        start_ms = time_ms - time_ms % WINDOW_MS
        window = stores.windows.fetch(key, start_ms)
        in_window = (window.value if window else 0) + 1
        stores.windows.put(key, ValueTimestampHeaders(in_window, time_ms, headers), start_ms)
        counted = stores.counts.get(key)
        stores.counts.put(key, ValueAndTimestamp((counted.value if counted else 0) + 1, time_ms))
        held = stores.totals.get(key)
        total: int = (held.value if held else 0) + amount
        stores.totals.put(key, ValueTimestampHeaders(total, time_ms, headers))
        return total


class InColumns(BatchProcessor):
    """Keeps readings in those stores that take columns, and forwards them with amount and total."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        for store in IN_COLUMNS:
            setattr(self, store, context.state_store(store))

    def process_batch(self, records: RecordColumns) -> None:
        stores: Any = self
        amounts = [None if value is None else json.loads(value)["amount"] for value in records.value.to_pylist()]
        groups = records.by_key
        totals = _running(groups, stores.totals.get_many(groups.keys), amounts)
        stores.totals.put_many(records.with_columns(value=pa.array(totals, pa.int64())))

        counted = records.filter([amount is not None for amount in amounts])
        ones = [1] * len(counted)
        counts = _running(counted.by_key, stores.counts.get_many(counted.by_key.keys), ones)
        stores.counts.put_many(counted.with_columns(value=pa.array(counts, pa.int64())))
        times = counted.timestamp_ms.to_numpy()
        starts = times - times % WINDOW_MS
        places = [f"{key} {start}" for key, start in zip(counted.key.to_pylist(), starts, strict=True)]
        windows = KeyGroups(pa.array(places, pa.string()))
        first = counted.take(windows.first_rows)
        held = stores.windows.fetch_many(first.key, starts[windows.first_rows])
        in_windows = pa.array(_running(windows, held, ones), pa.int64())
        stores.windows.put_many(counted.with_columns(value=in_windows), starts)

        told = zip(amounts, totals, strict=True)
        values = [None if amount is None else {"amount": amount, "total": total} for amount, total in told]
        self.context.forward_batch(records.with_columns(value=pa.array(values, AMOUNT_AND_TOTAL)))


def _running(groups: KeyGroups, held: HeldColumns, amounts: list[Any]) -> list[Any]:
    """Return what each key has come to by each row; None makes it begin again."""
    now = held.value.to_pylist()
    sums = []
    for code, amount in zip(groups.codes.tolist(), amounts, strict=True):
        now[code] = None if amount is None else (now[code] or 0) + amount
        sums.append(now[code])
    return sums


class BehindColumns(Everything):
    """Keeps readings in the other stores, record by record."""

    stores = tuple(store for store in STORES if store not in IN_COLUMNS)

    def _delete(self, record: Record[str, Any]) -> None:
        stores: Any = self
        stores.versions.put(record.key, None, record.timestamp_ms, record.headers)

    def _add_to_total(self, record: Record[str, Any], amount: int) -> int:
        total: int = record.value["total"]
        return total


def topology(*, in_columns: bool = False) -> Topology:
    """Return the topology; `in_columns` has the stores that can kept by a batch processor, to the same effect."""
    made = Topology()
    made.add_source("readings", key_serde=KEY, value_serde=Serdes.bytes() if in_columns else Serdes.json())
    if in_columns:
        made.add_processor("columns", InColumns, ["readings"])
        made.add_processor("everything", BehindColumns, ["columns"])
    else:
        made.add_processor("everything", Everything, ["readings"])
    stores = HeadedStores(KEY, INT)
    totals = stores.key_value("totals")
    for builder in (
        totals if in_columns else totals.with_caching_enabled(),
        stores.key_value("recent").with_ttl(TTL_MS, clock="event"),
        stores.windows("windows", FOREVER_MS, WINDOW_MS),
        stores.sessions("sessions", FOREVER_MS),
        stores.versions("versions", FOREVER_MS, VERSIONS_SEGMENT_MS),
        Stores.timestamped_key_value_store_builder(Stores.in_memory_key_value_store("counts"), KEY, INT),
    ):
        made.add_state_store(builder, "columns" if in_columns and builder.name in IN_COLUMNS else "everything")
    made.add_sink("out", "out", ["everything"], key_serde=KEY, value_serde=Serdes.string())
    return made
