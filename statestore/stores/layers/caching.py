"""The layer that holds writes back until a flush, so that of several to a key only the last goes on.

Source: Kafka's Caching*Store and NamedCache. Reads are not cached: RocksDB's block cache does that.
"""

from __future__ import annotations

from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.row_changes import RecordContext
from statestore.bytestore.write_sets.write_set import WriteSet

DEFAULT_CACHE_MAX_BYTES = 10 * 1024 * 1024  # Kafka's default of statestore.cache.max.bytes


class WrittenFor:
    """The record that a write was made for: the one being processed, but while a cache flushes, the write's own.

    Of a delete it has the headers that the serde of its key has added to, if that takes some.
    """

    def __init__(self, processing: RecordContext) -> None:
        self._processing = processing
        self.flushed: tuple[int, bytes] | None = None
        self.deleted_with: bytes | None = None

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp, in milliseconds since the epoch."""
        return self._processing.timestamp_ms if self.flushed is None else self.flushed[0]

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""
        if self.flushed is not None:
            return self.flushed[1]
        return self._processing.header_bytes if self.deleted_with is None else self.deleted_with


class CachingLayer(WriteSet):
    """Holds writes to `inner` back until `flush`, or until they exceed `max_bytes`.

    They go on in the order in which their keys were last written, each with the timestamp and headers of the record
    that it was made for: it has to be the current one.
    """

    takes_rows = False

    def __init__(self, inner: ByteStore, context: WrittenFor, max_bytes: int = DEFAULT_CACHE_MAX_BYTES) -> None:
        super().__init__(inner)
        self._context = context
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._records: dict[bytes, tuple[int, bytes]] = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        before = self.changes.get(key)
        if before is not None:
            self._size_bytes -= len(key) + len(before if isinstance(before, bytes) else b"")
        super().put(key, value)
        self._records[key] = (self._context.timestamp_ms, self._context.header_bytes)
        self._size_bytes += len(key) + len(value or b"")
        if self._size_bytes > self._max_bytes:
            self.flush()

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`, after what is held back was passed on: it is to be logged."""
        self.flush()
        self.inner.delete_below(end)

    def flush(self) -> None:
        """Pass on what was held back."""
        try:
            for key, value in self.changes.items():
                self._context.flushed = self._records[key]
                self.inner.put(key, value if isinstance(value, bytes) else None)
        finally:
            self._context.flushed = None
        self.clear()

    def clear(self) -> None:
        """Forget what is held back, without passing it on."""
        super().clear()
        self._records.clear()
        self._size_bytes = 0

    def _is_behind_committed(self, start: bytes) -> bool:
        # What it stands on holds writes in memory, too, which to look for the last one would all be put in order.
        return False

    def close(self) -> None:
        """Flush, and close the store below."""
        if self.is_open:
            self.flush()
        super().close()
        self.inner.close()
