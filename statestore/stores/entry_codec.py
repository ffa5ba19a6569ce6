"""How the entries of a store become bytes and back, and which headers the serde of their keys is passed.

In a store whose format has headers, a serde of keys that takes some is passed

    to put           those of what is put: what it adds is stored with the value, whose serde comes after it
    to delete        the record's that is being processed: what it adds is logged with the tombstone
    to find          the record's, for a key and for the ends of a range
    to read a key    those that are stored beside it

each time a copy, so that nobody else sees what it adds. A store without headers passes none. This is decided when a
store is made: other serdes of keys cost nothing.
Source: Metered*StoreWithHeaders of Kafka Streams 4.3.1 (KAFKA-20173).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

from statestore.bytestore.protocol import ByteStore, Change, ProcessingContext
from statestore.headers.record_headers import Headers
from statestore.stores.codec import DecodeWithHeaders, EncodeWithKey, StateSerdes, ValueCodec
from statestore.stores.layers.layer import WrittenFor

R = TypeVar("R")


class EntryCodec(NamedTuple):
    """A store's serdes, the codec of what it holds, and the records that it is read and written for."""

    serdes: StateSerdes[Any, Any]
    values: ValueCodec
    record: ProcessingContext  # the record that is being processed
    written_for: WrittenFor

    def keys_with_headers(self) -> KeysWithHeaders | None:
        """Return what passes headers to the serde of keys; None if it takes none, or the store has none."""
        encode, decode = self.values.encode_with_key, self.values.decode_with_headers
        if self.serdes.key_serde.with_headers is None or encode is None or decode is None:
            return None
        return KeysWithHeaders(self, encode, decode)


class KeysWithHeaders:
    """Serializes and deserializes the keys of one store with headers."""

    def __init__(self, entries: EntryCodec, encode: EncodeWithKey, decode: DecodeWithHeaders) -> None:
        self._encode = encode
        self._serdes = entries.serdes
        self._decode = decode
        self._record = entries.record
        self._written_for = entries.written_for

    def raw_key(self, key: Any) -> bytes:
        """Return the bytes of a key that is looked for. Raises SerializationError."""
        return self._serialize_key(key, self._record_headers())

    def entry(self, key: Any, holder: Any) -> Change:
        """Return the bytes of a key, whose headers a tombstone is logged with, and of what is put."""
        entry = self._encode(holder, partial(self._serialize_key, key))
        if entry is not None:
            self._written_for.deleted_with = None
            return entry
        headers = self._record_headers()
        raw_key = self._serialize_key(key, headers)
        self._written_for.deleted_with = headers.to_bytes()
        return raw_key, None

    def write(self, store: ByteStore, entries: Iterable[Change]) -> None:
        """Write entries that `entry` returns one by one, each for its own headers, after all have been serialized."""
        changes = [(change, self._written_for.deleted_with) for change in entries]
        for (key, stored), deleted_with in changes:
            self._written_for.deleted_with = deleted_with
            store.put(key, stored)

    def pair(self, raw_key: bytes, stored: bytes) -> tuple[Any, Any]:
        """Return the key and what the store holds of it. Raises FormatError and DeserializationError."""
        holder, headers = self._decode(stored)
        return self._serdes.key_from(raw_key, headers), holder

    def watch_stored(self, watch: Callable[[bytes], None]) -> None:
        """Have `watch` called with the bytes of every value that is put, from now on."""
        encode = self._encode

        def watched(holder: Any, raw_key: Callable[[Headers], bytes]) -> Change | None:
            entry = encode(holder, raw_key)
            if entry is not None and entry[1] is not None:
                watch(entry[1])
            return entry

        self._encode = watched

    def forget_delete_after(self, operation: Callable[..., R]) -> Callable[..., R]:
        """Return an operation that writes, and then forgets the headers of a delete."""

        @wraps(operation)
        def written(*arguments: Any, **options: Any) -> R:
            try:
                return operation(*arguments, **options)
            finally:
                self._written_for.deleted_with = None

        return written

    def _serialize_key(self, key: Any, headers: Headers) -> bytes:
        raw_key: bytes = self._serdes.raw_key(key, headers)
        return raw_key

    def _record_headers(self) -> Headers:
        return Headers.from_bytes(self._record.header_bytes)
