"""Which record an entry of a store belongs to, where the store's keys are made by the library.

A shard is a place of records, by their keys, so whoever moves entries between shards must know the record's key of
each. In most stores it is the store's own key; in these here it stands within.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.format.keys.due_key import (
    EXPIRY_SUFFIX,
    TIMER_KEYS,
    WINDOW_END_KEYS,
    expiring_key,
    timer_key,
    window_end_key,
)
from statestore.format.keys.entry_key import (
    LIST_KEYS,
    MAP_KEYS,
    SESSION_KEYS,
    VALUE_KEYS,
    WINDOWED_KEYS,
    key_at_front,
    session_key,
    windowed_key,
)
from statestore.format.values.buffered_record import BUFFERED_KEYS, buffered_key
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.waiting_values import WAITING_KEYS, waiting_key
from statestore.recovery.making.placement import KeyOf
from statestore.recovery.metadata.state_metadata import ENTRY_KEYS, StateMetadata


def _whole_key(key: bytes) -> bytes:
    return key


_KEY_OF: Final[dict[str, KeyOf]] = {
    VALUE_KEYS: _whole_key,
    LIST_KEYS: key_at_front,
    MAP_KEYS: key_at_front,
    WINDOWED_KEYS: windowed_key,
    SESSION_KEYS: session_key,
    TIMER_KEYS: timer_key,
    WINDOW_END_KEYS: window_end_key,
    WAITING_KEYS: waiting_key,
    BUFFERED_KEYS: buffered_key,
}


def record_keys(metadata: StateMetadata, key_of: Mapping[str, KeyOf] | None = None) -> dict[str, KeyOf]:
    """Return how to find the record's key, of each store of which that is known.

    `key_of` is what a user knows of others. Raises ValueError if it names a store that the state does not have.
    """
    known = dict(key_of or {})
    names = {spec.name for spec in metadata.stores}
    if unknown := sorted(known.keys() - names):
        raise ValueError(f"key_of names stores that the state does not have: {unknown}; it has {sorted(names)}")
    for node in metadata.topology:
        for store, entry_keys in node.get(ENTRY_KEYS, {}).items():
            key_of_entry = _key_of(entry_keys)
            if key_of_entry is not None:
                known.setdefault(store, key_of_entry)
    for store in _stores_with_expiry(metadata):
        # Where the keys of the store itself are not known to be those of records, neither are these: they go together.
        known.setdefault(store + EXPIRY_SUFFIX, _within(expiring_key, known.get(store, _whole_key)))
    return known


def _stores_with_expiry(metadata: StateMetadata) -> list[str]:
    """Return the stores with a time to live: only what says when entries expire is attached to no processor."""
    attached = {store for node in metadata.topology for store in node.get("stores", ())}
    topology_stores = {
        spec.name
        for spec in metadata.stores
        if spec.name not in attached and (spec.kind, spec.format) == (StoreKind.KEY_VALUE, StoreFormat.PLAIN)
    }
    return [spec.name for spec in metadata.stores if spec.name + EXPIRY_SUFFIX in topology_stores]


def _key_of(entry_keys: str) -> KeyOf | None:
    """Return how to find the record's key in what is recorded so; None if that is not known here."""
    if entry_keys in _KEY_OF:
        return _KEY_OF[entry_keys]
    around, _, window = entry_keys.rpartition(" ")
    outer = _key_of(around) if around and window in (WINDOWED_KEYS, SESSION_KEYS) else None
    return None if outer is None else _within(outer, _KEY_OF[window])


def _within(outer: KeyOf, inner: KeyOf) -> KeyOf:
    return lambda key: inner(outer(key))
