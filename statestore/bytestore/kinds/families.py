"""Column families: which one holds the values of a kind of store in a format. The names are Kafka Streams'.

`versionedKeyValueWithHeaders` is ours: no released Kafka Streams has a versioned store with headers, and trunk keeps
its rows in the family of the plain ones, where the one would be read as the other.

A shard's local database holds all of its stores, so that one write batch changes them together: a family is named
`STORE:FAMILY` there, and `:` can't occur in a store name. Kafka Streams has a database for each store or segment.
"""

from __future__ import annotations

from typing import Final

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import upgrade_between

_KEY_VALUE: Final = {
    StoreFormat.PLAIN: DEFAULT_FAMILY,
    StoreFormat.TIMESTAMPED: "keyValueWithTimestamp",
    StoreFormat.TIMESTAMPED_WITH_HEADERS: "keyValueWithTimestampAndHeaders",
}
FAMILIES: Final[dict[StoreKind, dict[StoreFormat, str]]] = {
    StoreKind.KEY_VALUE: _KEY_VALUE,
    StoreKind.WINDOW: _KEY_VALUE,
    StoreKind.SESSION: {StoreFormat.PLAIN: DEFAULT_FAMILY, StoreFormat.WITH_HEADERS: "sessionKeyValueWithHeaders"},
    StoreKind.VERSIONED: {StoreFormat.PLAIN: DEFAULT_FAMILY, StoreFormat.WITH_HEADERS: "versionedKeyValueWithHeaders"},
}


def skips_a_step(older: StoreFormat, newer: StoreFormat) -> bool:
    """Return whether an upgrade takes plain values to headers at once: KIP-1271 has them timestamped first."""
    return (older, newer) == (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED_WITH_HEADERS)


def older_formats(kind: StoreKind, store_format: StoreFormat) -> tuple[StoreFormat, ...]:
    """Return the formats that a store of this kind and format can be upgraded from, the newest first."""
    older = [known for known in FAMILIES[kind] if upgrade_between(known, store_format) is not None]
    return tuple(sorted(older, reverse=True))


def column_family(spec: StoreSpec, store_format: StoreFormat | None = None) -> str:
    """Return the name of the column family that holds the entries of `spec`, in another format if one is given."""
    return f"{spec.name}:{FAMILIES[spec.kind][spec.format if store_format is None else store_format]}"


def split_column_family(name: str) -> tuple[str, str]:
    """Return store and FAMILY of a column family that is named as above; FAMILY is empty if it is not."""
    store, _, family = name.partition(":")
    return store, family
