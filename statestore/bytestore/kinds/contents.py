"""What a store holds, entry by entry and whatever its kind: for readers that have no serdes and no topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.format.values.stored_value import split_stored


class StoredEntry(NamedTuple):
    """One entry: of a key-value store, of a window or session, or one version.

    Times are milliseconds since the epoch. `start_ms` and `end_ms` are those of the window or session, or from when and
    until when the version is valid; None for key-value stores, and for the end of the latest version. `timestamp_ms`
    and `header_bytes` are None where the store's format has none.
    """

    key: bytes
    start_ms: int | None
    end_ms: int | None
    value: bytes
    timestamp_ms: int | None
    header_bytes: bytes | None


def stored_entries(spec: StoreSpec, store: ByteStore) -> Iterator[StoredEntry]:
    """Yield all entries of a store in the order of its bytes. Tombstones of versions are left out.

    Raises FormatError for bytes that are not of the store's kind and format.
    """
    for key, start_ms, end_ms, stored in layout_of(spec).entries(store.range(None, None)):
        yield StoredEntry(key, start_ms, end_ms, *split_stored(spec.format, stored))
