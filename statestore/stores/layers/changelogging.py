"""The layer that takes down every write for the changelog. Source: Kafka's ChangeLogging*BytesStore."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Change
from statestore.bytestore.record_context import RecordContext
from statestore.bytestore.row_changes import RowChanges
from statestore.recovery.commit.changelog import Changelog
from statestore.stores.layers.layer import ByteStoreLayer


class ChangeLoggingLayer(ByteStoreLayer):
    """Appends each write to `changelog` after it was made, deletes of absent keys too; none that it reads from `inner`.

    Keys of windows and sessions are logged without the segment that they stand in.
    """

    def __init__(self, inner: ByteStore, spec: StoreSpec, changelog: Changelog, context: RecordContext) -> None:
        super().__init__(inner)
        self._changelog = changelog
        self._append = changelog.append
        self._context = context
        self._skipped_bytes = SEGMENT_ID_SIZE if spec.kind.is_segmented else 0
        self._written = changelog.read_from(inner, context)
        if self._written is not None:
            # Nothing is left to do here: a call less for each write.
            self.put = inner.put  # type: ignore[method-assign]
            self.write = inner.write  # type: ignore[method-assign]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key` and log it; None deletes it."""
        self.inner.put(key, value)
        self._append(key[self._skipped_bytes :], value, self._context)

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order and log them."""
        pairs = list(changes)
        self.inner.write(pairs)
        self._changelog.append_all(self._logged(pairs), self._context)

    def write_rows(self, changes: RowChanges) -> None:
        """Apply all rows, and log the last write of each key for its record."""
        super().write_rows(changes)
        if self._written is None:
            self._changelog.extend(changes.last_logged, changes.record_of)

    def _logged(self, changes: Collection[Change]) -> Collection[Change]:
        skipped = self._skipped_bytes
        return [(key[skipped:], value) for key, value in changes] if skipped else changes
