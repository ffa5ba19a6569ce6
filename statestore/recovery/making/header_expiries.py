"""What says when entries expire, made from their headers: for states of entries that no query has put.

A query notes when an entry expires as it is put. Entries that come from elsewhere, from Kafka Streams, rows or files,
have their headers and no such note, and would stay for ever: so it is made beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from statestore.bytestore.kinds.store_spec import StoreSpec, expiry_spec
from statestore.errors import FormatError
from statestore.format.keys.due_key import due_key, expiry_key, time_bytes
from statestore.format.values.stored_value import split_stored
from statestore.headers.expiry_header import expiry_in_headers
from statestore.recovery.making.logical_writes import LogicalWrite


def with_expiry_stores(specs: Iterable[StoreSpec], expiry_headers: Mapping[str, str]) -> tuple[StoreSpec, ...]:
    """Return the specs with those of the stores that say when entries expire, of each store with such a header.

    Raises ValueError for a store that is not there, that has no headers or is no key-value store, and for one whose
    entries' times are there already.
    """
    known = {spec.name: spec for spec in specs}
    for name in expiry_headers:
        spec = known.get(name)
        if spec is None:
            raise ValueError(f"there is no store {name!r} whose entries could expire by a header")
        if spec.kind.is_segmented or not spec.format.has_headers:
            raise ValueError(f"nothing of store {name!r} expires by a header: it is {spec.describe()}")
        beside = expiry_spec(spec)
        if beside.name in known:
            raise ValueError(f"when entries of store {name!r} expire is known already, in store {beside.name!r}")
        known[beside.name] = beside
    return tuple(known.values())


def expiries(spec: StoreSpec, writes: Sequence[LogicalWrite], header: str) -> list[LogicalWrite]:
    """Return what is to be put beside some entries of a store, by their header of this name.

    A malformed one does not count, as in a query.
    """
    return [note for write in writes for note in _notes(spec, write, header)]


def _notes(spec: StoreSpec, write: LogicalWrite, header: str) -> Iterator[LogicalWrite]:
    if write.stored is None:
        return
    header_bytes = split_stored(spec.format, write.stored).header_bytes or b""
    try:
        expiry_ms = expiry_in_headers(header_bytes, header)
    except FormatError:
        return
    if expiry_ms is not None:
        yield LogicalWrite(expiry_key(write.key), time_bytes(expiry_ms), None)
        yield LogicalWrite(due_key(expiry_ms, write.key), b"", None)
