"""The processor of docs/migrating-from-spark-state.md after it was moved: state and output keep the headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame

from statestore import KeyContext, Serdes, StatefulProcessorHandle, Topology
from statestore.spark import HeaderStatefulProcessor, per_key_topology, stateful

LARGEST = 3


class CustomerTotals(HeaderStatefulProcessor):
    """Keeps each customer's total, the largest amounts and how often each item was ordered."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.get_value_state("total", Serdes.int64())
        self.largest = handle.get_list_state("largest", Serdes.int64())
        self.items = handle.get_map_state("items", Serdes.string(), Serdes.int64())

    def handle_input_rows(self, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        total = self.total.get() or 0
        largest = list(self.largest.get())
        for frame in rows:
            for order in frame["value"]:
                total += order["amount"]
                largest.append(order["amount"])
                item = f"item {order['amount'] % 3}"
                self.items.update_value(item, (self.items.get_value(item) or 0) + 1)
        largest = sorted(largest)[-LARGEST:]
        self.total.update(total)
        self.largest.put(largest)
        result = {"total": total, "largest": largest, "items": dict(self.items.iterator())}
        yield pd.DataFrame({"value": [result]})


def customer_totals_topology() -> Topology:
    """Return what runs the processor, in a query or in a TopologyTestDriver."""
    return per_key_topology(
        CustomerTotals,
        key_serde=Serdes.string(),
        value_serde=Serdes.json(),
        output_topic="customer-totals",
        output_value_serde=Serdes.json(),
        name="customers",
    )


def customer_totals(records: DataFrame, state_location: str | Path, **options: Any) -> DataFrame:
    """Return a row for each customer and micro-batch, with the headers of the customer's last order."""
    return stateful(records, customer_totals_topology(), shards=2, state_location=state_location, **options)
