"""Converts entries to another format, and fills in unknown timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.protocol import Pair
from statestore.errors import StoreFormatError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored, split_stored, upgrade_between
from statestore.format.values.value_timestamp_headers import UNKNOWN_TIMESTAMP_MS
from statestore.recovery.making.logical_writes import LogicalWrite, logical_write
from upgrade_tools.migration.planning.plan import StorePlan

_FIRST: Final = bytes(4)
"""The sequence number that ends each key of a window store without duplicates."""


def converted_pairs(plan: StorePlan, pairs: Iterator[Pair], timestamp_ms: int | None) -> Iterator[Pair]:
    """Return entries of a database in their new format; those without a time get `timestamp_ms`, if there is one.

    Raises StoreFormatError for a window that only a store with duplicates can have.
    """
    convert_value = _conversion(plan.reading.format, plan.making.format)
    if convert_value is not None:
        convert = LAYOUTS[plan.reading.kind].conversion(convert_value)
        pairs = ((key, convert(key, value)) for key, value in pairs)
    stamp = timestamp_filler(plan.making.format, timestamp_ms)
    if stamp is not None:
        pairs = ((key, stamp(value)) for key, value in pairs)
    return _without_duplicates(plan, pairs) if _refuses_duplicates(plan) else pairs


def converted_writes(plan: StorePlan, writes: list[LogicalWrite], timestamp_ms: int | None) -> list[LogicalWrite]:
    """Return the writes that make a store, as `converted_pairs` does entries."""
    if _refuses_duplicates(plan):
        for duplicate in [key for key, _, _ in writes if not key.endswith(_FIRST)]:
            raise _duplicate_error(plan, duplicate)
    convert = _conversion(plan.reading.format, plan.making.format)
    if convert is not None:
        writes = [logical_write((key, convert(stored), from_ms)) for key, stored, from_ms in writes]
    stamp = timestamp_filler(plan.making.format, timestamp_ms)
    if stamp is None:
        return writes
    return [write if write.stored is None else write._replace(stored=stamp(write.stored)) for write in writes]


def _conversion(present: StoreFormat, wanted: StoreFormat) -> Callable[[bytes | None], bytes | None] | None:
    """Return what turns values of one format into those of another, None if it is the same.

    A newer one is an upgrade. An older one gets what a store of that format would restore from changelog records with
    value, timestamp and headers.
    """
    if present is wanted:
        return None
    upgrade = upgrade_between(present, wanted)
    if upgrade is not None:
        return upgrade

    def restore(stored: bytes | None) -> bytes | None:
        if stored is None:
            return None
        value, timestamp_ms, header_bytes = split_stored(present, stored)
        known_ms = UNKNOWN_TIMESTAMP_MS if timestamp_ms is None else timestamp_ms
        return join_stored(wanted, value, known_ms, header_bytes or b"")

    return restore


def timestamp_filler(store_format: StoreFormat, timestamp_ms: int | None) -> Callable[[bytes], bytes] | None:
    """Return what sets `timestamp_ms` on values with an unknown timestamp; None if there is nothing to do."""
    if timestamp_ms is None or not store_format.has_timestamp:
        return None

    def stamp(stored: bytes) -> bytes:
        value, known_ms, header_bytes = split_stored(store_format, stored)
        if known_ms != UNKNOWN_TIMESTAMP_MS:
            return stored
        stamped = join_stored(store_format, value, timestamp_ms, header_bytes or b"")
        assert stamped is not None  # only None becomes None
        return stamped

    return stamp


def _refuses_duplicates(plan: StorePlan) -> bool:
    return plan.reading.kind.has_windows and not plan.reading.retain_duplicates


def _without_duplicates(plan: StorePlan, pairs: Iterator[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        if not pair[0].endswith(_FIRST):
            raise _duplicate_error(plan, pair[0])
        yield pair


def _duplicate_error(plan: StorePlan, key: bytes) -> StoreFormatError:
    return StoreFormatError(
        plan.name,
        recorded="window store, with duplicates",
        asked=plan.reading.describe(),
        where=f"the window with the key 0x{key.hex()}",
        remedy=f"It has several values for a key and window: read it with --kind {plan.kind.value}-dup",
    )
