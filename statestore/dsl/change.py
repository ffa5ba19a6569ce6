"""Change: what flows between the nodes of tables, and how it is written to a repartition topic.

    change := old:bytes 00                                     the key had a value, which is gone or elsewhere
            | new:bytes 01                                     the key has a value that was not there
            | size:varint new:bytes[size] old:bytes 02         both

Source: Kafka Streams' internals.Change and ChangedSerializer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from statestore.errors import FormatError
from statestore.format.serde import Serde, Serdes
from statestore.format.varint import decode_varint, encode_varint


class Change(NamedTuple):
    """What became of a key of a table."""

    new: Any
    """None if the key is gone."""
    old: Any = None
    """None if the key was not there, or if nobody below asked for old values."""
    is_latest: bool = True
    """Whether no version of the key is later; false only where a versioned table got a record out of order."""


def change_serde(values: Serde[Any]) -> Serde[Change]:
    """Return how changes of such values are written: all but whether one is the latest."""
    codec = _ChangeCodec(values)
    return Serdes.of_topics(f"change of {values.name}", codec.serialize, codec.deserialize)


@dataclass(frozen=True)
class _ChangeCodec:
    values: Serde[Any]

    def serialize(self, topic: str | None, headers: Any, change: Change) -> bytes:
        """Return its bytes. Raises ValueError for a change of nothing."""
        write = self.values.on_topic(topic).serialize
        if change.new is None:
            if change.old is None:
                raise ValueError("a change has a new or an old value")
            return write(change.old, headers) + b"\0"
        new = write(change.new, headers)
        if change.old is None:
            return new + b"\1"
        return encode_varint(len(new)) + new + write(change.old, headers) + b"\2"

    def deserialize(self, topic: str | None, headers: Any, data: bytes) -> Change:
        """Return the change. Raises FormatError for bytes that are none."""
        read = self.values.on_topic(topic).deserialize
        flag, held = data[-1:], data[:-1]
        if flag == b"\0":
            return Change(None, read(held, headers))
        if flag == b"\1":
            return Change(read(held, headers))
        if flag != b"\2":
            raise FormatError("change", f"it ends with {flag.hex() or 'nothing'}, not with 00, 01 or 02")
        size_bytes, start = decode_varint(held, 0, "change")
        end = start + size_bytes
        if not start <= end <= len(held):
            raise FormatError("change", f"its new value has {size_bytes} bytes, of {len(held) - start} that are there")
        return Change(read(held[start:end], headers), read(held[end:], headers))
