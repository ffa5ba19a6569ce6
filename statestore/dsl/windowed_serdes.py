"""Serdes of windowed keys, as topics have them. Source: Kafka's TimeWindowedSerializer and SessionWindowedSerializer.

window    key:u8[] start_ms:i64_be
session   key:u8[] end_ms:i64_be start_ms:i64_be
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from statestore.dsl.column_types import WindowedType, windowed_column
from statestore.errors import DeserializationError, SerializationError
from statestore.errors.data import TruncatedError
from statestore.format.binary_columns import as_binary_array, binary_array, interleave, is_valid, positions_and_bytes
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import Serde, Serdes
from statestore.format.serde_columns import ColumnSerde
from statestore.stores.iterator import Windowed
from statestore.stores.supplier import Duration, milliseconds

_TIME: Final = np.dtype(">i8")


@dataclass(frozen=True)
class WindowedSerde(Serde[Windowed]):
    """The serde of windowed keys, and their layout."""

    layout: WindowedLayout = field(kw_only=True)


def time_windowed_serde(inner: Serde[Any], window_size: Duration) -> WindowedSerde:
    """Return the serde of keys of windows of one size: bytes hold the start of a window, its end is computed.

    Raises ValueError for a negative size.
    """
    size_ms = milliseconds("window_size", window_size)
    return _serde(WindowedLayout(f"windowed {inner.name}", inner, ("start_ms",), size_ms))


def session_windowed_serde(inner: Serde[Any]) -> WindowedSerde:
    """Return the serde of keys of sessions."""
    return _serde(WindowedLayout(f"session {inner.name}", inner, ("end_ms", "start_ms")))


@dataclass(frozen=True)
class WindowedLayout:
    """A key, followed by times."""

    name: str
    inner: Serde[Any]
    times: tuple[str, ...]
    size_ms: int = 0
    """The size of windows whose end is not in the bytes."""
    struct: struct.Struct = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "struct", struct.Struct(f">{len(self.times)}q"))

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowedLayout, (self.name, self.inner, self.times, self.size_ms)

    def write(self, window: Windowed) -> bytes:
        """Return the bytes of a windowed key."""
        return self.inner.serialize(window.key) + self.struct.pack(*(getattr(window, time) for time in self.times))

    def read(self, data: bytes) -> Windowed:
        """Return the windowed key in bytes. Raises TruncatedError if there are too few for the times."""
        end = len(data) - self.struct.size
        if end < 0:
            raise TruncatedError(self.name, wanted=self.struct.size, got=len(data))
        times = dict(zip(self.times, self.struct.unpack(data[end:]), strict=True))
        end_ms = min(times["start_ms"] + self.size_ms, MAX_TIME_MS)
        return Windowed(self.inner.deserialize(data[:end]), **{"end_ms": end_ms, **times})

    def write_column(self, inner: ColumnSerde, column: pa.Array) -> pa.BinaryArray:
        """Return the bytes of a column of windowed keys. Raises SerializationError for any other column."""
        if not isinstance(column.type, WindowedType):
            raise SerializationError(f"{self.name} needs a column of windowed keys, got {column.type}")
        times = np.stack([column.storage.field(time).to_numpy() for time in self.times], axis=-1).astype(_TIME)
        places = np.arange(len(column) + 1) * self.struct.size
        keys = inner.serialize(column.storage.field("key"))
        positions, data = interleave([keys, binary_array(places, times)], "keys with times")
        return binary_array(positions[::2], data)

    def read_column(self, inner: ColumnSerde, column: pa.BinaryArray) -> pa.ExtensionArray:
        """Return the windowed keys in a column of bytes. Raises DeserializationError, naming the row."""
        positions, data = positions_and_bytes(as_binary_array(column, self.name))
        sizes = np.diff(positions) - self.struct.size
        if (sizes < 0).any():
            row = int(np.argmax(sizes < 0))
            raise DeserializationError(f"{self.name}: row {row} has too few bytes for its times")
        places = (positions[1:] - self.struct.size)[:, np.newaxis] + np.arange(self.struct.size)
        found = data[places].view(_TIME).astype(np.int64)
        times = {time: found[:, number] for number, time in enumerate(self.times)}
        keys = inner.deserialize(pa.compute.binary_slice(column, 0, -self.struct.size))
        ends = times.get("end_ms", np.minimum(times["start_ms"], MAX_TIME_MS - self.size_ms) + self.size_ms)
        return windowed_column(keys, times["start_ms"], ends)


def _keeping_nulls(convert: Callable[[pa.Array], pa.Array], column: pa.Array) -> pa.Array:
    if not column.null_count:
        return convert(column)
    valid = is_valid(column)
    rows = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return convert(column.filter(pa.array(valid))).take(rows)


def _serde(layout: WindowedLayout) -> WindowedSerde:
    inner = layout.inner.columns
    columns = None
    if inner is not None:
        columns = ColumnSerde(
            layout.name,
            WindowedType(inner.type),
            partial(_keeping_nulls, partial(layout.write_column, inner)),
            partial(_keeping_nulls, partial(layout.read_column, inner)),
        )
    made = Serdes.of(layout.name, layout.write, layout.read, columns)
    return WindowedSerde(made.name, made.serialize, made.deserialize, columns=columns, layout=layout)
