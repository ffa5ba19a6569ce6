"""What a store holds, entry by entry and whatever its kind: for readers that have no serdes and no topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, is_latest_key
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.format.session_key import split_session_key
from statestore.format.stored_value import split_stored
from statestore.format.versioned_row import decode_latest_row, decode_segment_row
from statestore.format.window_key import MAX_TIME_MS, split_window_key


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
    for key, stored in store.range(None, None):
        for entry_key, start_ms, end_ms, value in entry_parts(spec, key, stored):
            yield StoredEntry(entry_key, start_ms, end_ms, *split_stored(spec.format, value))


def entry_parts(spec: StoreSpec, key: bytes, stored: bytes) -> Iterator[tuple[bytes, int | None, int | None, bytes]]:
    """Yield key, start, end and stored value of each entry that one pair of a store's bytes holds.

    Raises FormatError for bytes that are not of the store's kind.
    """
    if spec.kind is StoreKind.KEY_VALUE:
        yield key, None, None, stored
        return
    inner_key = key[SEGMENT_ID_SIZE:]
    if spec.kind is StoreKind.WINDOW:
        assert spec.window_size_ms is not None  # checked when the spec was made
        window_key, start_ms, _ = split_window_key(inner_key)
        yield window_key, start_ms, min(start_ms + spec.window_size_ms, MAX_TIME_MS), stored
    elif spec.kind is StoreKind.SESSION:
        session_key, start_ms, end_ms = split_session_key(inner_key)
        yield session_key, start_ms, end_ms, stored
    elif is_latest_key(key):
        valid_from_ms, value = decode_latest_row(stored)
        yield inner_key, valid_from_ms, None, value
    else:
        for version, valid_to_ms in decode_segment_row(stored).intervals():
            if version.value is not None:
                yield inner_key, version.valid_from_ms, valid_to_ms, version.value
