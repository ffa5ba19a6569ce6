"""The processor of docs/migrating-from-spark-state.md before it is moved: Spark's own state, without headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

LARGEST = 3


class CustomerTotals(StatefulProcessor):
    """Keeps each customer's total, the largest amounts and how often each item was ordered."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "amount bigint")
        self.largest = handle.getListState("largest", "amount bigint")
        self.items = handle.getMapState("items", "item string", "times bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        total = self.total.get()[0] if self.total.exists() else 0
        largest = [amount for (amount,) in self.largest.get()]
        for frame in rows:
            for value in frame["value"]:
                order = json.loads(value)
                total += order["amount"]
                largest.append(order["amount"])
                item = (f"item {order['amount'] % 3}",)
                seen = self.items.getValue(item)
                self.items.updateValue(item, ((seen[0] if seen else 0) + 1,))
        largest = sorted(largest)[-LARGEST:]
        self.total.update((total,))
        self.largest.put([(amount,) for amount in largest])
        items = {item: times for (item,), (times,) in self.items.iterator()}
        result = {"total": total, "largest": largest, "items": dict(sorted(items.items()))}
        yield pd.DataFrame({"key": [key[0]], "value": [json.dumps(result)]})

    def close(self) -> None:
        pass


def customer_totals(records: DataFrame) -> DataFrame:
    """Return a row for each customer and micro-batch."""
    return (
        records.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        .groupBy("key")
        .transformWithStateInPandas(CustomerTotals(), "key string, value string", "update", "none")
    )
