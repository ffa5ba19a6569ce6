"""Versions of some keys, of which the oldest have expired."""

from __future__ import annotations

from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows
from statestore.bytestore.protocol import ByteStore

VERSIONS = (
    (b"k", b"1", 0),
    (b"gone", b"1", 5),
    (b"gone", None, 9),
    (b"j", b"1", 10),
    (b"k", b"2", 70_000),
    (b"k", None, 400_000),
    (b"k", b"3", 500_000),
)
"""The first three have ended too long ago, by the last one, for a history of two minutes."""


def put_versions(store: ByteStore, spec: StoreSpec) -> None:
    """Put them into the bytes of a versioned store."""
    rows = VersionedRows(store, Segments(store, *spec.retention))
    for version in VERSIONS:
        rows.put(*version)
