"""Where the entries of a state go when it gets another number of shards, and proof that this is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import FormatError, NewStateError
from statestore.errors.new_state import KeyPlacementError, UnknownRecordKeyError
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
from statestore.format.keys.partitioner import Partitions, murmur2_column
from statestore.format.values.buffered_record import BUFFERED_KEYS, buffered_key
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.waiting_values import WAITING_KEYS, waiting_key
from statestore.recovery.making.logical_writes import LogicalWrite
from statestore.recovery.metadata.state_metadata import StateMetadata

KeyOf: TypeAlias = Callable[[bytes], bytes]
"""From a key of a store, without the times of a window, session or version, to the record's key."""


@dataclass(frozen=True)
class Placement:
    """Tells which of `shards` new shards an entry belongs to.

    `key_of` says how to find the record's key in the stores for which that is known. For any other it is assumed to be
    the store's own key, and checked: each entry must be in the shard of that key. A single old shard proves nothing, so
    there `trust_keys` must say so. If the state keeps its shards, nothing needs proof.
    """

    metadata: StateMetadata
    shards: int
    key_of: Mapping[str, KeyOf]
    trust_keys: bool = False
    keeps_shards: bool = False

    def check(self) -> None:
        """Raise NewStateError if records were placed by partition, which the old shards do not tell."""
        if self.metadata.shard_by == "partition" and self.metadata.shards % self.shards:
            raise NewStateError(
                f"records of this state were placed by their partition, which is not in state: {self.metadata.shards} "
                f"shards can be joined to a divisor of that number, not turned into {self.shards}"
            )

    def new_shards(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite]) -> list[int]:
        """Return the new shard of each entry of an old one. Raises KeyPlacementError, UnknownRecordKeyError."""
        old = self.metadata
        if self.keeps_shards:
            return [shard] * len(writes)
        if old.shard_by == "partition":
            return [shard % self.shards] * len(writes)
        if old.shards == 1 < self.shards and spec.name not in self.key_of and not self.trust_keys:
            raise UnknownRecordKeyError(
                spec.name,
                problem="nothing proves that its keys are the keys of records, as there is a single shard. If they "
                "are, say so with trust_keys; if not, say what they are with key_of",
            )
        hashes = self._hashes(spec, writes)
        self._check_place(spec, shard, writes, hashes % old.shards)
        found: list[int] = (hashes % self.shards).tolist()
        return found

    def shards_of(self, shard: int) -> range:
        """Return the new shards that get entries of an old one, if the new number is a multiple of the old one."""
        if self.metadata.shard_by == "partition":
            return range(shard, shard + 1)
        return range(shard, self.shards, self.metadata.shards)

    def by_shard(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite]) -> dict[int, list[LogicalWrite]]:
        """Return the entries of an old shard by their new one, each in their order. Raises as `new_shards` does."""
        divided: dict[int, list[LogicalWrite]] = {}
        for target, write in zip(self.new_shards(spec, shard, writes), writes, strict=True):
            divided.setdefault(target, []).append(write)
        return divided

    def check_new(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite]) -> None:
        """Raise KeyPlacementError if an entry does not belong to the new shard that it was found in."""
        if self.metadata.shard_by != "partition" and not self.keeps_shards:
            self._check_place(spec, shard, writes, self._hashes(spec, writes) % self.shards)

    def _hashes(self, spec: StoreSpec, writes: list[LogicalWrite]) -> Partitions:
        record_key = self.key_of.get(spec.name)
        try:
            keys = layout_of(spec).plain_keys([write.key for write in writes])
            if record_key is not None:
                keys = [record_key(key) for key in keys]
            hashes = murmur2_column(pa.array(keys, pa.binary()))
        except (FormatError, ValueError, TypeError, pa.ArrowException) as cause:
            raise UnknownRecordKeyError(spec.name, problem=f"a key has no record's key in it ({cause})") from cause
        positive: Partitions = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int32)
        return positive

    def _check_place(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite], places: Partitions) -> None:
        wrong = np.nonzero(places != shard)[0]
        if wrong.size:
            first = int(wrong[0])
            raise KeyPlacementError(
                spec.name, key=writes[first].key.hex(), shard=shard, expected_shard=int(places[first])
            )


def _whole_key(key: bytes) -> bytes:
    return key


# Of stores whose keys the library makes, around the record's key.
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
    """Return how to find the record's key where that is known; `key_of` is what a user knows. Raises ValueError."""
    known = dict(key_of or {})
    names = {spec.name for spec in metadata.stores}
    if unknown := sorted(known.keys() - names):
        raise ValueError(f"key_of names stores that the state does not have: {unknown}; it has {sorted(names)}")
    for store, entry_keys in metadata.entry_keys.items():
        key_of_entry = _key_of(entry_keys)
        if key_of_entry is not None:
            known.setdefault(store, key_of_entry)
    attached = {store for node in metadata.topology for store in node.get("stores", ())}
    for spec in metadata.stores:
        store = spec.name.removesuffix(EXPIRY_SUFFIX)
        is_plain = spec.format is StoreFormat.PLAIN and not spec.kind.is_segmented
        # A store for when the entries of another one expire is attached to no processor.
        if is_plain and store != spec.name and store in names and spec.name not in attached:
            # If the record's key is known in the keys of that store, it is in these.
            known.setdefault(spec.name, _within(expiring_key, known.get(store, _whole_key)))
    return known


def check_entry_keys(store: str, entry_keys: str) -> None:
    """Raise ValueError unless it is known how to find the record's key in keys that are said to be made so."""
    if _key_of(entry_keys) is None:
        raise ValueError(f"store {store!r}: entry_keys must be one of {sorted(_KEY_OF)}, not {entry_keys!r}")


def _key_of(entry_keys: str) -> KeyOf | None:
    """Return how to find the record's key in keys that are recorded as `entry_keys`; None if it is unknown."""
    if entry_keys in _KEY_OF:
        return _KEY_OF[entry_keys]
    around, _, window = entry_keys.rpartition(" ")
    outer = _key_of(around) if around and window in (WINDOWED_KEYS, SESSION_KEYS) else None
    return None if outer is None else _within(outer, _KEY_OF[window])


def _within(outer: KeyOf, inner: KeyOf) -> KeyOf:
    return lambda key: inner(outer(key))
