"""Processors that are handed a key's rows, made of functions, and their topologies."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from statestore import ExpiredTimer, KeyContext, Serdes, StatefulProcessorHandle, Topology
from statestore.format.records.header_bytes import encode_headers
from statestore.headers.topic_columns import SinkFields, SourceFields
from statestore.spark import HeaderStatefulProcessor, per_key_topology
from tests.support.spark.task_batches import TaskBatches


def record(
    key: str | None, value: Any, offset: int = 0, timestamp_ms: int = 5, trace: bytes = b"1", topic: str = "in"
) -> SourceFields:
    data = None if value is None else Serdes.json().serialize(value)
    return (topic, 3, offset, timestamp_ms, None if key is None else key.encode(), data, headers(trace))


def headers(trace: bytes) -> bytes:
    return encode_headers([("trace", trace)])


class Doing(HeaderStatefulProcessor):
    """Runs functions."""

    def __init__(
        self,
        on_rows: Callable[..., Any] = lambda self, key, rows, context: iter(()),
        on_timer: Callable[..., Any] = lambda self, key, context, timer: iter(()),
        on_init: Callable[..., Any] = lambda self, handle: None,
    ) -> None:
        self.on_rows, self.on_timer, self.on_init = on_rows, on_timer, on_init

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.on_init(self, handle)

    def handle_input_rows(self, key: Any, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        return self.on_rows(self, key, rows, context)

    def handle_expired_timer(
        self, key: Any, context: KeyContext, expired_timer: ExpiredTimer
    ) -> Iterator[pd.DataFrame]:
        return self.on_timer(self, key, context, expired_timer)


def topology_of(processor: Any, **options: Any) -> Topology:
    serdes = {"key_serde": Serdes.string(), "value_serde": Serdes.json(), "output_value_serde": Serdes.json()}
    return per_key_topology(processor, **{**serdes, "output_topic": "out", **options})


def run(home: Path, processor: Any, *records: SourceFields, **options: Any) -> list[SinkFields]:
    return TaskBatches(home, topology_of(processor, **options)).run(*records)


def values(outputs: list[SinkFields]) -> list[Any]:
    return [Serdes.json().deserialize(output[3]) for output in outputs if output[3] is not None]
