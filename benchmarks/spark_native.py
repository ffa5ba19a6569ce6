"""The same operator on Spark's own Python state: transformWithStateInPandas with a ValueState per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

_HEADERS = "array<struct<key:string,value:binary>>"
_OUTPUT = f"key binary, value binary, timestamp timestamp, headers {_HEADERS}"
_STATE = f"value binary, timestamp timestamp, headers {_HEADERS}"


class CountAndKeepNative(StatefulProcessor):
    """What benchmarks.workload.CountAndKeep does, as one would write it for Spark alone."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("kept", _STATE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        kept = self.state.get()
        count = int.from_bytes(bytes(kept[0])[:8], "big") if kept else 0
        found = [
            row for frame in rows for row in zip(frame.offset, frame.value, frame.timestamp, frame.headers, strict=True)
        ]
        found.sort(key=lambda row: row[0])
        out = []
        for _, value, timestamp, headers in found:
            count += 1
            counted = count.to_bytes(8, "big") + value
            out.append((key[0], counted, timestamp, headers))
        pairs = [(header["key"], bytes(header["value"])) for header in headers]
        self.state.update((counted, timestamp.to_pydatetime(), pairs))
        yield pd.DataFrame(out, columns=["key", "value", "timestamp", "headers"])

    def close(self) -> None:
        """Spark asks for it."""


def native_operator(rows: DataFrame) -> DataFrame:
    """Return the operator over `rows`, grouped by key."""
    needed = rows.select("key", "value", "offset", "timestamp", "headers")
    return needed.groupBy("key").transformWithStateInPandas(CountAndKeepNative(), _OUTPUT, "append", "none")
