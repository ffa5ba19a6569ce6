"""Processors in the style of Spark's transformWithStateInPandas: a key's rows as DataFrames, states and timers.

The same processor runs in a query, through `stateful()`, and in a TopologyTestDriver.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from numbers import Integral
from typing import Any, Final

import numpy as np
import pandas as pd

from statestore.errors.readable import shape_of
from statestore.errors.run import OutputFrameError
from statestore.format.serde import Serde
from statestore.headers.record_headers import Headers
from statestore.operators.per_key import (
    DEFAULT_HELD_BYTES_MAX,
    DEFAULT_HELD_ROWS_MAX,
    ExpiredTimer,
    KeyContext,
    Output,
    Row,
    per_key_operator,
)
from statestore.operators.state_handle import StatefulProcessorHandle
from statestore.processor.topology import Topology
from statestore.spark.spark_versions import object_column

_COLUMNS: Final = ("key", "value", "timestamp", "headers", "topic")
_DTYPES: Final[Mapping[type, str]] = {int: "int64", float: "float64", bool: "bool"}


class HeaderStatefulProcessor:
    """Processes the rows of one key at a time. Spark's StatefulProcessor, over stores that keep headers.

    One instance serves one shard for one micro-batch: keep in a state what must outlive the batch.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get states from the handle, the same every time, and keep them and the handle in attributes.

        Also runs once when the topology is made, to see which states there are; then none can be used yet.
        """
        raise NotImplementedError(f"{type(self).__name__} must define init(self, handle)")

    def handle_input_rows(self, key: Any, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        """Process a key's rows of this batch, and yield DataFrames with the output.

        Rows are in order of time; a frame has some thousand at most. Columns: key, value, timestamp
        (datetime64[ms], naive, UTC), topic, partition, offset, headers (a Headers each, parsed when looked into).

        Yielded columns: value; and optionally key (default: the key), timestamp (datetimes, naive ones in UTC, or
        integers of milliseconds), headers (Headers, or pairs of key and value) and topic. Missing or None timestamps
        and headers are those of the key's last row in the batch, with which states are written, too. None as a value or
        key is null.
        """
        raise NotImplementedError(f"{type(self).__name__} must define handle_input_rows(self, key, rows, context)")

    def handle_expired_timer(
        self, key: Any, context: KeyContext, expired_timer: ExpiredTimer
    ) -> Iterator[pd.DataFrame]:
        """Process a timer of a key, and yield DataFrames as `handle_input_rows` does.

        By default timestamps are the timer's time, and there are no headers.
        """
        return iter(())

    def close(self) -> None:
        """Release what `init` took. Called once, also after a failure."""


def per_key_topology(
    processor: HeaderStatefulProcessor | Callable[[], HeaderStatefulProcessor],
    *,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    output_topic: str,
    topics: str | Sequence[str] | None = None,
    output_key_serde: Serde[Any] | None = None,
    output_value_serde: Serde[Any] | None = None,
    time_mode: str = "none",
    timer_resolution_ms: int = 1_000,
    held_rows_max: int = DEFAULT_HELD_ROWS_MAX,
    held_bytes_max: int = DEFAULT_HELD_BYTES_MAX,
    name: str = "per-key",
    persistent: bool = True,
) -> Topology:
    """Return a topology that runs a processor: for `stateful()`, and for a TopologyTestDriver.

    Args:
        processor: the class, a function that makes one, or one that is copied for each shard and batch.
        key_serde: reads the records' keys, and keeps them in state.
        value_serde: reads the records' values.
        output_topic: where rows without a topic of their own go.
        topics: what to read; None means every topic.
        output_key_serde: writes the keys of the output; None means `key_serde`.
        output_value_serde: writes the values; None means by their type, as a sink without serde.
        time_mode: "none"; "processing_time", timers by the wall clock; or "event_time", timers by stream time.
        timer_resolution_ms: how often to look for timers by the wall clock, which wakes each shard up as often.
        held_rows_max: how many rows a shard holds back; if a batch has more, a key may be called more than once.
        held_bytes_max: how many bytes their keys, values and headers may have, as they came; likewise.
        name: of the processor; `<name>-source`, `<name>-sink` and, for timers, the store `<name>-timers` follow it.
        persistent: whether state is kept in RocksDB, else in memory.

    Raises ValueError and TypeError for illegal arguments, StateHandleError and TopologyError for states that are not
    possible, and what the processor's `init` raises.
    """
    operator = per_key_operator(
        _LogicMaker(processor),
        topics=topics,
        key_serde=key_serde,
        value_serde=value_serde,
        output_topic=output_topic,
        output_key_serde=output_key_serde,
        output_value_serde=output_value_serde,
        time_mode=time_mode,
        timer_resolution_ms=timer_resolution_ms,
        held_rows_max=held_rows_max,
        held_bytes_max=held_bytes_max,
        name=name,
        persistent=persistent,
    )
    return Topology().add_operator(operator)


@dataclass(frozen=True)
class _LogicMaker:
    processor: Any

    def __call__(self) -> _FrameLogic:
        given = self.processor
        if isinstance(given, HeaderStatefulProcessor):
            return _FrameLogic(copy.deepcopy(given))
        made = given() if callable(given) else given
        if not isinstance(made, HeaderStatefulProcessor):
            raise TypeError(f"processor must be a HeaderStatefulProcessor, its class or a function, not {made!r}")
        return _FrameLogic(made)


class _FrameLogic:
    """Turns rows into DataFrames for a processor, and its DataFrames into output."""

    def __init__(self, processor: HeaderStatefulProcessor) -> None:
        self._processor = processor

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._processor.init(handle)

    def input_rows(self, key: Any, rows: Iterator[Sequence[Row]], context: KeyContext) -> Iterator[Output]:
        frames = (_frame(key, piece) for piece in rows)
        return _outputs("handle_input_rows()", key, self._processor.handle_input_rows(key, frames, context))

    def expired_timer(self, key: Any, context: KeyContext, timer: ExpiredTimer) -> Iterator[Output]:
        return _outputs("handle_expired_timer()", key, self._processor.handle_expired_timer(key, context, timer))

    def close(self) -> None:
        self._processor.close()


def _frame(key: Any, rows: Sequence[Row]) -> pd.DataFrame:
    values, times_ms, topics, partitions, offsets, headers = zip(*rows, strict=True)
    # From arrays, which pandas takes unchanged: a frame of Series costs seven times as much, and each key has a frame.
    return pd.DataFrame(
        {
            "key": _column([key] * len(rows)),
            "value": _column(values),
            "timestamp": np.array(times_ms, dtype="datetime64[ms]"),
            "topic": object_column(topics),
            "partition": np.array(partitions, dtype="int32"),
            "offset": np.array(offsets, dtype="int64"),
            "headers": object_column(headers),
        }
    )


def _column(values: Sequence[Any]) -> Any:
    """Return values as numbers if all have one type that numpy knows, else as objects, such as integers beside None."""
    kinds = set(map(type, values))
    dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is not None:
        with suppress(OverflowError):  # Python's integers have no bound
            return np.array(values, dtype=dtype)
    return object_column(values)


def _outputs(method: str, key: Any, frames: Any) -> Iterator[Output]:
    if isinstance(frames, pd.DataFrame) or not hasattr(frames, "__iter__"):
        raise OutputFrameError(f"{method} returned a {type(frames).__name__}, not an iterator of DataFrames")
    for frame in frames:
        if not isinstance(frame, pd.DataFrame):
            raise OutputFrameError(f"{method} yielded a {type(frame).__name__}, not a DataFrame")
        if len(frame.columns):  # pd.DataFrame() means no output, as in Spark
            yield from _output_rows(method, key, frame)


def _output_rows(method: str, key: Any, frame: pd.DataFrame) -> Iterator[Output]:
    unknown = [str(column) for column in frame.columns if column not in _COLUMNS]
    if "value" not in frame.columns:
        raise OutputFrameError(f"{method} yielded a DataFrame without a column value (columns: {list(frame.columns)})")
    if unknown:
        raise OutputFrameError(f"{method} yielded a DataFrame with unknown columns: {unknown}")
    if not frame.columns.is_unique:
        raise OutputFrameError(f"{method} yielded a DataFrame with two columns of one name: {list(frame.columns)}")
    count = len(frame)
    columns = {name: frame[name].tolist() for name in frame.columns if name != "timestamp"}
    for name in ("key", "value"):
        if name in columns and frame[name].hasnans:
            columns[name] = [None if _is_missing(field) else field for field in columns[name]]
    nothing = [None] * count
    for row_key, value, time_ms, headers, topic in zip(
        columns.get("key", [key] * count),
        columns["value"],
        _milliseconds(frame["timestamp"]) if "timestamp" in frame.columns else nothing,
        columns.get("headers", nothing),
        columns.get("topic", nothing),
        strict=True,
    ):
        yield Output(row_key, value, time_ms, _headers(headers), _topic(topic))


def _milliseconds(column: pd.Series) -> list[int | None]:
    """Return datetimes as milliseconds since the epoch, and integers as they are."""
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert(None)  # to UTC
    if column.dtype.kind == "M":
        times_ms = column.astype("datetime64[ms]").astype("int64").tolist()
        return [None if missing else ms for ms, missing in zip(times_ms, column.isna().tolist(), strict=True)]
    return [_one_in_milliseconds(timestamp) for timestamp in column.tolist()]


def _one_in_milliseconds(timestamp: Any) -> int | None:
    if _is_missing(timestamp):
        return None
    if isinstance(timestamp, Integral) and not isinstance(timestamp, bool):
        return int(timestamp)
    if isinstance(timestamp, float) and timestamp.is_integer():
        return int(timestamp)  # what pandas makes of integers beside missing ones
    if not isinstance(timestamp, datetime):  # pandas' Timestamp is one
        raise OutputFrameError(
            f"a timestamp must be a datetime or an integer of milliseconds, not {shape_of(timestamp)}"
        )
    (time_ms,) = _milliseconds(pd.Series([pd.Timestamp(timestamp)]))
    return time_ms


def _headers(headers: Any) -> Headers | None:
    if isinstance(headers, Headers):
        return headers
    if _is_missing(headers):
        return None
    try:
        return Headers((key, value) for key, value in headers)
    except (TypeError, ValueError) as cause:
        raise OutputFrameError(
            f"headers must be Headers or pairs of text and bytes, not {shape_of(headers)} ({cause})"
        ) from cause


def _topic(topic: Any) -> str | None:
    if _is_missing(topic):
        return None
    if not isinstance(topic, str):
        raise OutputFrameError(f"a topic must be text, not {shape_of(topic)}")
    return topic


def _is_missing(value: Any) -> bool:
    """Return whether pandas takes a value for a missing one: None, NaN, NaT or NA."""
    return value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and value != value)
