"""The layouts of a store's values side by side: what changelogs, restores and upgrades need of them.

A changelog record carries value, timestamp and headers apart, whatever the layout they are stored in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import (
    convert_from_plain_to_header_format,
    convert_plain_to_value_headers,
    convert_to_header_format,
    convert_to_timestamped_format,
    encode_value_headers,
    encode_value_timestamp,
    encode_value_timestamp_headers,
    split_value_headers,
    split_value_timestamp,
    split_value_timestamp_headers,
)


class StoredParts(NamedTuple):
    """A stored value taken apart; None stands for what its layout has no room for."""

    value: bytes
    timestamp_ms: int | None
    header_bytes: bytes | None


def _split_timestamped(stored: bytes) -> StoredParts:
    timestamp_ms, value = split_value_timestamp(stored)
    return StoredParts(value, timestamp_ms, None)


def _without_timestamp(header_bytes: bytes, value: bytes) -> StoredParts:
    return StoredParts(value, None, header_bytes)


_SPLIT: Final[dict[StoreFormat, Callable[[bytes], StoredParts]]] = {
    StoreFormat.PLAIN: lambda stored: StoredParts(stored, None, None),
    # In the layouts, the value comes last.
    StoreFormat.TIMESTAMPED: _split_timestamped,
    StoreFormat.TIMESTAMPED_WITH_HEADERS: lambda stored: StoredParts(*split_value_timestamp_headers(stored)[::-1]),
    StoreFormat.WITH_HEADERS: lambda stored: _without_timestamp(*split_value_headers(stored)),
}

_JOIN: Final[dict[StoreFormat, Callable[[bytes | None, int, bytes], bytes | None]]] = {
    StoreFormat.PLAIN: lambda value, timestamp_ms, header_bytes: value,
    StoreFormat.TIMESTAMPED: lambda value, timestamp_ms, header_bytes: encode_value_timestamp(value, timestamp_ms),
    StoreFormat.TIMESTAMPED_WITH_HEADERS: encode_value_timestamp_headers,
    StoreFormat.WITH_HEADERS: lambda value, timestamp_ms, header_bytes: encode_value_headers(value, header_bytes),
}

_UPGRADES: Final[dict[tuple[StoreFormat, StoreFormat], Callable[[bytes | None], bytes | None]]] = {
    (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED): convert_to_timestamped_format,
    (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED_WITH_HEADERS): convert_from_plain_to_header_format,
    (StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_WITH_HEADERS): convert_to_header_format,
    (StoreFormat.PLAIN, StoreFormat.WITH_HEADERS): convert_plain_to_value_headers,
}


def split_stored(store_format: StoreFormat, stored: bytes) -> StoredParts:
    """Return a stored value taken apart. Raises FormatError if it does not follow the layout of `store_format`."""
    return _SPLIT[store_format](stored)


def join_stored(store_format: StoreFormat, value: bytes | None, timestamp_ms: int, header_bytes: bytes) -> bytes | None:
    """Return a record's parts in a layout, without what it has no room for; None for None. Kafka's RecordConverters."""
    return _JOIN[store_format](value, timestamp_ms, header_bytes)


def upgrade_between(older: StoreFormat, newer: StoreFormat) -> Callable[[bytes | None], bytes | None] | None:
    """Return what turns values of `older` into `newer`, with no headers and timestamp -1; None if nothing does."""
    return _UPGRADES.get((older, newer))


def restore_stored(
    written_as: StoreFormat, restored_as: StoreFormat, value: bytes | None, timestamp_ms: int, header_bytes: bytes
) -> bytes | None:
    """Return what a changelog record of a store of one format is in a store of another; None for a value of None.

    It is what the store held then, upgraded: a value without headers goes through `convert_to_header_format`. So a
    plain value gets the timestamp -1 and not its record's, and a restored store equals one that was upgraded in place.
    Raises ValueError if there is no such upgrade.
    """
    stored = join_stored(written_as, value, timestamp_ms, header_bytes)
    if written_as is restored_as:
        return stored
    upgrade = upgrade_between(written_as, restored_as)
    if upgrade is None:
        raise ValueError(f"values can't go from {written_as.describe()} to {restored_as.describe()}")
    return upgrade(stored)
