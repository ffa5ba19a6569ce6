"""Serdes of windowed keys, as topics have them. Source: Kafka's TimeWindowedSerializer and SessionWindowedSerializer.

window    key:u8[] start_ms:i64_be
session   key:u8[] end_ms:i64_be start_ms:i64_be
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from statestore.errors import TruncatedError
from statestore.format.serde import Serde, Serdes
from statestore.format.window_key import MAX_TIME_MS
from statestore.stores.iterator import Windowed

__all__ = ["session_windowed_serde", "time_windowed_serde"]

_START: Final = struct.Struct(">q")
_END_AND_START: Final = struct.Struct(">qq")


def time_windowed_serde(inner: Serde[Any], window_size_ms: int) -> Serde[Windowed]:
    """Return the serde of keys of windows of one size; bytes say when a window starts, and its end is computed."""
    size = _TimeWindowed(inner.serialize, inner.deserialize, window_size_ms)
    return Serdes.of(f"windowed {inner.name}", size.write, size.read)


def session_windowed_serde(inner: Serde[Any]) -> Serde[Windowed]:
    """Return the serde of keys of sessions."""
    sessions = _SessionWindowed(inner.serialize, inner.deserialize)
    return Serdes.of(f"session {inner.name}", sessions.write, sessions.read)


@dataclass(frozen=True)
class _TimeWindowed:
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    size_ms: int

    def write(self, window: Windowed) -> bytes:
        return self.serialize(window.key) + _START.pack(window.start_ms)

    def read(self, data: bytes) -> Windowed:
        key, (start_ms,) = _split("windowed key", data, _START)
        return Windowed(self.deserialize(key), start_ms, min(start_ms + self.size_ms, MAX_TIME_MS))


@dataclass(frozen=True)
class _SessionWindowed:
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]

    def write(self, window: Windowed) -> bytes:
        return self.serialize(window.key) + _END_AND_START.pack(window.end_ms, window.start_ms)

    def read(self, data: bytes) -> Windowed:
        key, (end_ms, start_ms) = _split("session key", data, _END_AND_START)
        return Windowed(self.deserialize(key), start_ms, end_ms)


def _split(what: str, data: bytes, times: struct.Struct) -> tuple[bytes, tuple[int, ...]]:
    if len(data) < times.size:
        raise TruncatedError(what, wanted=times.size, got=len(data))
    return data[: -times.size], times.unpack(data[-times.size :])
