"""Change: what flows between the nodes of tables, and how it is written to a repartition topic.

    change := old:bytes 00                                     the key lost its value, or it moved to another key
            | new:bytes 01                                     the key had no value before
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
    """The change of one key of a table."""

    new: Any
    """None if the key was deleted."""
    old: Any = None
    """None if the key had no value, or if no step below asked for old values."""
    is_latest: bool = True
    """Whether no version of the key is later; False only if a versioned table got a record out of order."""


def change_serde(values: Serde[Any]) -> Serde[Change]:
    """Return the serde of changes of such values; it does not keep `is_latest`."""
    codec = _ChangeCodec(values)
    return Serdes.of_topics(f"change of {values.name}", codec.serialize, codec.deserialize)


@dataclass(frozen=True)
class _ChangeCodec:
    values: Serde[Any]

    def serialize(self, topic: str | None, headers: Any, change: Change) -> bytes:
        """Return its bytes. Raises ValueError if there is neither a new nor an old value."""
        write = self.values.on_topic(topic).serialize
        if change.new is None:
            if change.old is None:
                raise ValueError("a change must have a new or an old value, not None for both")
            return write(change.old, headers) + b"\0"
        new = write(change.new, headers)
        if change.old is None:
            return new + b"\1"
        return encode_varint(len(new)) + new + write(change.old, headers) + b"\2"

    def deserialize(self, topic: str | None, headers: Any, data: bytes) -> Change:
        """Return the change. Raises FormatError for malformed bytes."""
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
